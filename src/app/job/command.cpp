#include "app/job/command.h"

#include <algorithm>

#include "base/error.h"

namespace headspan {

const std::vector<CommandRow>& commands() {
  static const std::vector<std::string> study{"model",     "tokens", "activations", "grams",
                                              "predict",   "cross",  "ceiling",     "overlap",
                                              "attention", "run",    "output"};
  static const std::vector<CommandRow> rows{
      {Command::study, "study", "headspan study [JOB.ini] [--section.key value ...]",
       "predict each attention head from others, and write one result file for each checkpoint of a job",
       study, /*many_checkpoints=*/true, /*runs_long=*/true},
      {Command::calibrate,
       "calibrate",
       "headspan calibrate [JOB.ini] [--section.key value ...]",
       "choose what a compressed KV cache of a model stores, and write it as a plan",
       {"model", "tokens", "grams", "compress", "run"},
       /*many_checkpoints=*/false,
       /*runs_long=*/true},
      {Command::evaluate,
       "evaluate",
       "headspan evaluate [JOB.ini] [--section.key value ...]",
       "run a model with a full and a compressed KV cache, and report loss, scores, generated tokens, bytes "
       "and speed",
       {"model", "tokens", "evaluate", "archive", "run"},
       /*many_checkpoints=*/false,
       /*runs_long=*/true},
      {Command::plan, "plan", "headspan plan [JOB.ini] --ranks N [--section.key value ...]",
       "predict memory, traffic and time of a study on N ranks, and whether it fits, without running it",
       study,
       /*many_checkpoints=*/true},
      {Command::theory,
       "theory",
       "headspan theory [JOB.ini] [--theory.key value ...]",
       "compare the bound of the paper's Theorem 2.1 and the exact expectation with random projections",
       {"theory"}},
      {Command::archive_calibrate,
       "archive calibrate",
       "headspan archive calibrate [JOB.ini] [--section.key value ...]",
       "fit a codec to the keys and values of a model, and measure what it loses at which size",
       {"model", "tokens", "archive", "run"},
       /*many_checkpoints=*/false,
       /*runs_long=*/true},
      {Command::archive_encode,
       "archive encode",
       "headspan archive encode [JOB.ini] [--archive.key value ...]",
       "code the keys and values of a sequence with a model's codec",
       {"archive"},
       /*many_checkpoints=*/false,
       /*runs_long=*/true},
      {Command::archive_decode,
       "archive decode",
       "headspan archive decode [JOB.ini] [--archive.key value ...]",
       "write the keys and values of an archive, or of some of its tokens and layers",
       {"archive"},
       /*many_checkpoints=*/false,
       /*runs_long=*/true},
      {Command::inspect,
       "inspect",
       "headspan inspect PATH ...",
       "say what a file is (checkpoint folder, tokens, manifest, job, activations, Grams, plan, codec, "
       "archive, result), and "
       "check it; print a table of results",
       {}}};
  return rows;
}

bool CommandRow::reads(const std::string& section) const {
  return std::find(sections.begin(), sections.end(), section) != sections.end();
}

bool CommandRow::accepts(const std::string& section) const {
  const auto shares_files = [&](const CommandRow& other) {
    return std::any_of(sections.begin(), sections.end(),
                       [&](const std::string& s) { return other.reads(s); });
  };
  return std::any_of(commands().begin(), commands().end(),
                     [&](const CommandRow& other) { return other.reads(section) && shares_files(other); });
}

const CommandRow& row_of(Command command) {
  const auto found = std::find_if(commands().begin(), commands().end(),
                                  [&](const CommandRow& row) { return row.command == command; });
  HS_ASSERT(found != commands().end());
  return *found;
}

const CommandRow* find_command(const std::string& name) {
  const auto found = std::find_if(commands().begin(), commands().end(),
                                  [&](const CommandRow& row) { return name == row.name; });
  return found != commands().end() ? &*found : nullptr;
}

const std::vector<CommandOption>& command_options() {
  static const std::set<Command> all = [] {
    std::set<Command> set;
    for (const CommandRow& row : commands()) set.insert(row.command);
    return set;
  }();
  static const std::set<Command> logging = [] {
    std::set<Command> set;
    for (const CommandRow& row : commands())
      if (row.runs_long) set.insert(row.command);
    return set;
  }();
  static const std::vector<CommandOption> rows{
      {"ranks", "N", "ranks of the planned study", {Command::plan}},
      {"memory-gib", "M", "GiB that a rank may use; exit code 2 if it needs more", {Command::plan}},
      {"rates", "FILE", "speeds of the machine, key = value, in place of the built-in ones", {Command::plan}},
      {"units", "", "list the checkpoints and their state for scripts; compute nothing", {Command::study}},
      {"dry-run", "", "check the inputs and say what would be computed; compute nothing", {Command::study}},
      {"json", "", "print JSON", {Command::plan, Command::inspect}},
      {"quiet", "", "print errors and warnings only", logging, 'q'},
      {"verbose", "", "also print where ranks run and what each phase takes", logging, 'v'},
      {"help", "", "print this", all, 'h'}};
  return rows;
}

std::string command_options_help(Command command) {
  std::string text;
  for (const CommandOption& option : command_options()) {
    if (option.commands.count(command) == 0) continue;
    const std::string value = option.value;
    text += "  " + (option.letter == '\0' ? "" : std::string("-") + option.letter + ", ") + "--" +
            option.name + (value.empty() ? "" : " " + value) + "\n      " + option.help + "\n";
  }
  return text;
}

}  // namespace headspan
