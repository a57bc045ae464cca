#include "app/manual/man_page.h"

#include <set>

#include "app/job/command.h"
#include "app/job/job_options.h"
#include "base/provenance.h"

namespace headspan {
namespace {

/// Returns text that no character of makes a macro or an escape.
std::string plain(const std::string& text) {
  std::string out = !text.empty() && (text[0] == '.' || text[0] == '\'') ? "\\&" : "";
  for (const char c : text) out += c == '\\' ? std::string("\\e") : c == '-' ? "\\-" : std::string(1, c);
  return out;
}

/// Returns an entry of a list: a heading in bold and its text.
std::string entry(const std::string& heading, const std::string& text) {
  return ".TP\n.B " + plain(heading) + "\n" + plain(text) + "\n";
}

std::string names_of(const std::set<Command>& some) {
  std::string names;
  for (const Command command : some) names += (names.empty() ? "" : ", ") + std::string(row_of(command).name);
  return names;
}

std::set<Command> readers(const JobOption& option) {
  std::set<Command> found;
  for (const CommandRow& row : commands())
    if (option.is_read_by(row.command)) found.insert(row.command);
  return found;
}

std::string options() {
  std::string text;
  for (const CommandOption& option : command_options()) {
    const std::string letter = option.letter == '\0' ? "" : std::string("-") + option.letter + ", ";
    const std::string value = *option.value == '\0' ? "" : std::string(" ") + option.value;
    const bool of_all = option.commands.size() == commands().size();
    text += entry(letter + "--" + option.name + value,
                  std::string(option.help) + (of_all ? "" : "; of " + names_of(option.commands)));
  }
  return text + entry("--version", "print the versions of headspan and of the libraries that it runs on");
}

std::string keys() {
  const Job defaults;
  std::string text, section;
  for (const JobOption& option : job_options()) {
    if (option.section() != section) {
      section = option.section();
      text += ".SS [" + section + "]\n";
    }
    const std::string value = option.get(defaults);
    text += entry(option.name, option.help + " (" + option.allowed + ")." +
                                   (value.empty() ? "" : " Default: " + value + ".") + " Read by " +
                                   names_of(readers(option)) + ".");
  }
  return text;
}

constexpr const char* kDescription =
    ".PP\n"
    "headspan measures how well each attention head of a language model can be predicted linearly from other "
    "heads, and "
    "makes compressed KV caches from what it finds. It reads checkpoints in the Hugging Face layout and "
    "token files, runs "
    "with and without\n"
    ".BR mpirun (1),\n"
    "and writes netCDF\\-4/HDF5 files.\n"
    ".PP\n"
    "A job is a file of sections and keys. Each key can also be given on the command line, which overrides "
    "the file. Lists "
    "are comma\\-separated; paths are relative to the current folder. In a job file a line that starts with "
    "# or ; is a "
    "comment, as is the rest of a line from # on.\n";

constexpr const char* kRest =
    ".SH EXIT STATUS\n"
    ".TP\n.B 0\nThe work is done.\n"
    ".TP\n.B 1\nThe environment failed.\n"
    ".TP\n.B 2\nThe input is at fault.\n"
    ".TP\n.B 3\nStopped by a signal or run.time_limit, with the state saved: the same command continues.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n.B OMP_NUM_THREADS\nThreads of a rank; else its share of the cores.\n"
    ".TP\n.B OPENBLAS_CORETYPE\nKernels of OpenBLAS; else the fastest, which are measured once.\n"
    ".TP\n.B XDG_CACHE_HOME\nWhere measured choices are kept; else ~/.cache.\n"
    ".SH SEE ALSO\n"
    ".BR mpirun (1),\n.BR sbatch (1)\n";

}  // namespace

std::string man_page() {
  std::string text = ".TH HEADSPAN 1 \"\" \"headspan " + program_version() + "\" \"User Commands\"\n";
  text += ".SH NAME\nheadspan \\- predict attention heads from each other, and compress KV caches\n";
  text +=
      ".SH SYNOPSIS\n.B headspan\n.I COMMAND\n[\\fIJOB.ini\\fR] [\\fB\\-\\-\\fIsection.key value\\fR ...]\n";
  text += std::string(".SH DESCRIPTION\n") + kDescription + ".SH COMMANDS\n";
  for (const CommandRow& command : commands()) text += entry(command.usage, command.summary);
  return text + ".SH OPTIONS\n" + options() + ".SH KEYS OF A JOB\n" + keys() + kRest;
}

}  // namespace headspan
