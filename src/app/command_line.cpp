#include "app/command_line.h"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>

#include "app/job/job_file.h"
#include "app/job/job_options.h"
#include "app/job/value_kind.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/provenance.h"

namespace headspan {
namespace {

namespace po = boost::program_options;

constexpr char kOrigin[] = "command line";

constexpr std::array<const char*, 3> kPlanOptions{{"ranks", "memory-gib", "rates"}};

struct Command {
  const char* name;
  bool takes_job;
  const char* usage;
  const char* help;
};

constexpr std::array<Command, 6> kCommands{{
    {"study", true, "headspan study [JOB.ini] [--units] [--section.key value ...]",
     "predict each attention head from others, for every checkpoint of a job: one result file each; with "
     "--units only list them"},
    {"calibrate", true, "headspan calibrate [JOB.ini] [--section.key value ...]",
     "find how the KV cache of a model is best stored in few bytes, and write it as a plan"},
    {"evaluate", true, "headspan evaluate [JOB.ini] [--section.key value ...]",
     "run a model with a full and a compressed KV cache: loss, scores, generation, bytes, speed"},
    {"plan", true,
     "headspan plan [JOB.ini] --ranks N [--memory-gib M] [--rates FILE] [--section.key value ...]",
     "say what a study would cost on N ranks, and whether it fits, without running it"},
    {"theory", true, "headspan theory [JOB.ini] [--theory.key value ...]",
     "draw random projections and hold Theorem 2.1's bound and the exact expectation against them"},
    {"inspect", false, "headspan inspect PATH ...",
     "say what a file is (checkpoint folder, tokens, manifest, job, activations, Grams, result), and check "
     "it"},
}};

const Command* find_command(const std::string& name) {
  const auto found = std::find_if(kCommands.begin(), kCommands.end(),
                                  [&](const Command& command) { return name == command.name; });
  return found != kCommands.end() ? &*found : nullptr;
}

std::string command_names() {
  std::string names;
  for (const Command& command : kCommands) names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

std::string program_help() {
  std::string text = program_name() +
                     "\nWhich attention heads of a language model lie in the linear span of the others.\n\n";
  for (const Command& command : kCommands)
    text += std::string("  ") + command.usage + "\n      " + command.help + "\n";
  return text +
         "  headspan COMMAND --help\n  headspan --version\n\n"
         "Runs the same with and without mpirun. Exit code: 0 done; 1 the environment failed; 2 the input is "
         "at fault;\n"
         "3 stopped with the state saved, submit again.\n";
}

std::string command_help(const Command& command) {
  std::string text = std::string(command.usage) + "\n" + command.help + "\n";
  if (!command.takes_job) return text;
  return text +
         "\nThe command line overrides the job file. Lists are comma-separated; paths are relative to the "
         "current\n"
         "directory. In a job file lines that start with # or ; are comments, and # starts one behind a "
         "value too.\n" +
         job_options_help(command.name);
}

/// What the user wrote, before its meaning is looked at.
struct Written {
  std::vector<std::string> words;
  GivenKeys keys;
  bool units = false;
  bool help = false;
  bool version = false;
};

std::vector<po::option> run_boost(int argc, const char* const* argv) {
  po::options_description known;
  known.add_options()("help", "")("version", "")("units", "")("word", po::value<std::string>());
  for (const char* name : kPlanOptions) known.add_options()(name, po::value<std::string>(), "");
  for (const JobOption& option : job_options())
    known.add_options()(option.name.c_str(), po::value<std::string>(), "");
  po::positional_options_description words;
  words.add("word", -1);
  namespace style = po::command_line_style;
  try {
    return po::command_line_parser(argc, argv)
        .options(known)
        .positional(words)
        .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
        .allow_unregistered()
        .run()
        .options;
  } catch (const po::error& error) {
    throw InputError(kOrigin, "", "", printable(error.what()), "headspan COMMAND --help lists the keys");
  }
}

Written read_words(int argc, const char* const* argv) {
  Written written;
  const std::vector<po::option> options = run_boost(argc, argv);
  for (std::size_t i = 0; i < options.size(); ++i) {
    const po::option& option = options[i];
    const std::string& key = option.string_key;
    std::string value = option.value.empty() ? "" : option.value.front();
    if (key == "help" || (option.position_key >= 0 && value == "-h")) {
      written.help = true;
    } else if (option.position_key >= 0) {
      written.words.push_back(value);
    } else if (key == "version") {
      written.version = true;
    } else if (key == "units") {
      written.units = true;
    } else if (option.unregistered) {
      if (value.empty() && i + 1 < options.size() && options[i + 1].position_key >= 0)
        value = options[i + 1].value[0];
      refuse_unknown_key(kOrigin, key, value);
    } else if (value.substr(0, 2) == "--") {
      throw InputError(kOrigin, key, "", "has no value", "--" + key + " VALUE");
    } else if (!written.keys.emplace(key, GivenValue{kOrigin, value}).second) {
      throw InputError(kOrigin, key, printable(value), "is given twice", "keep one of the two");
    }
  }
  return written;
}

/// Takes the options of plan alone out of `keys`. --memory-gib is run.memory_gib.
PlanRequest take_plan_options(const std::string& command, GivenKeys& keys) {
  PlanRequest plan;
  for (const char* name : kPlanOptions) {
    const auto found = keys.find(name);
    if (found == keys.end()) {
      if (command == "plan" && std::string(name) == "ranks")
        throw InputError(kOrigin, "--ranks", "", "is missing", "headspan plan JOB.ini --ranks N");
      continue;
    }
    const std::string text = found->second.text;
    if (command != "plan")
      throw InputError(kOrigin, name, printable(text), "is not for " + command, "it is for plan");
    keys.erase(found);
    if (std::string(name) == "memory-gib") keys["run.memory_gib"] = {kOrigin, text};
    if (std::string(name) == "rates") plan.rates = text;
    if (std::string(name) != "ranks") continue;
    const auto ranks = integer(1, kMaxRanks);
    try {
      plan.ranks = ranks.read(text);
    } catch (const BadValue& error) {
      throw InputError(kOrigin, "--ranks", printable(text), error.what(), "allowed: " + ranks.allowed);
    }
  }
  return plan;
}

Job read_job(const std::vector<std::string>& words, const GivenKeys& overrides) {
  const auto make = [&](const std::string& name, const GivenKeys& given) {
    if (words[0] == "theory") return make_theory_job(given);
    if (words[0] == "calibrate") return make_calibrate_job(name, given);
    return words[0] == "evaluate" ? make_evaluate_job(name, given) : make_job(name, given);
  };
  if (words.size() > 2)
    throw InputError(kOrigin, "", "", "'" + printable(words[2]) + "' is one argument too many",
                     "one job file, and --section.key for each key");
  if (words.size() < 2) return make(kOrigin, overrides);
  GivenKeys given = read_job_file(words[1]);
  for (const auto& [key, value] : overrides) given[key] = value;
  Job job = make(words[1], given);
  job.file = words[1];
  return job;
}

}  // namespace

Request parse_command_line(int argc, const char* const* argv) {
  Written written = read_words(argc, argv);
  Request request;
  if (written.version) {
    request.answer = program_name() + "\n";
    return request;
  }
  if (written.words.empty()) {
    if (!written.help)
      throw InputError(kOrigin, "", "", "names no command", "one of " + command_names() + ", or --help");
    request.answer = program_help();
    return request;
  }
  const Command* command = find_command(written.words[0]);
  if (command == nullptr)
    throw InputError(kOrigin, "", "", "'" + printable(written.words[0]) + "' is not a command",
                     "one of " + command_names());
  request.command = command->name;
  if (written.help) {
    request.answer = command_help(*command);
    return request;
  }
  request.units = written.units;
  if (request.units && request.command != "study")
    throw InputError(kOrigin, "units", "", "is not for " + request.command, "it is for study");
  request.plan = take_plan_options(request.command, written.keys);
  if (command->takes_job) {
    request.job = read_job(written.words, written.keys);
  } else {
    if (!written.keys.empty())
      throw InputError(kOrigin, written.keys.begin()->first, printable(written.keys.begin()->second.text),
                       std::string("is not for ") + command->name, command->usage);
    request.files.assign(written.words.begin() + 1, written.words.end());
    if (request.files.empty()) throw InputError(kOrigin, "", "", "names no file", command->usage);
  }
  return request;
}

}  // namespace headspan
