#include "app/manual/completions.h"

#include <set>
#include <vector>

#include "app/job/command.h"
#include "app/job/job_options.h"
#include "app/manual/value_words.h"

namespace headspan {
namespace {

std::string join(const std::vector<std::string>& words, const char* by) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : by) + word;
  return text;
}

/// The words of a command's name: "archive", "encode".
std::pair<std::string, std::string> split_name(const CommandRow& row) {
  const std::string name = row.name;
  const std::size_t blank = name.find(' ');
  return {name.substr(0, blank), blank == std::string::npos ? "" : name.substr(blank + 1)};
}

/// Returns the first words of all commands, or the second words of those that begin with `first`.
std::vector<std::string> command_words(const std::string& first = "") {
  std::vector<std::string> words;
  for (const CommandRow& row : commands()) {
    const auto [group, rest] = split_name(row);
    const std::string word = first.empty() ? group : group == first ? rest : "";
    if (!word.empty() && (words.empty() || words.back() != word)) words.push_back(word);
  }
  return words;
}

std::vector<std::string> options_of(const CommandRow& row) {
  std::vector<std::string> names;
  for (const CommandOption& option : command_options())
    if (option.commands.count(row.command) > 0) names.push_back(std::string("--") + option.name);
  for (const JobOption& option : job_options())
    if (option.is_read_by(row.command)) names.push_back("--" + option.name);
  return names;
}

/// Returns text in a description of zsh's _arguments, within single quotes.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out;
}

std::string zsh_arguments(const CommandRow& row) {
  std::string text = "_arguments";
  const auto add = [&](const std::string& name, const std::string& help, const std::string& value) {
    text += " \\\n    '--" + name + (value.empty() ? "" : "=") + "[" + zsh_text(help) + "]" +
            (value.empty() ? "" : ":value:" + value) + "'";
  };
  for (const CommandOption& option : command_options())
    if (option.commands.count(row.command) > 0)
      add(option.name, option.help,
          *option.value == '\0'                 ? ""
          : std::string(option.value) == "FILE" ? "_files"
                                                : " ");
  for (const JobOption& option : job_options()) {
    if (!option.is_read_by(row.command)) continue;
    const std::vector<std::string> words = value_words(option);
    add(option.name, option.help,
        takes_path(option) ? "_files"
        : words.empty()    ? " "
                           : "(" + join(words, " ") + ")");
  }
  return text + " \\\n    '*:file:_files'\n";
}

}  // namespace

std::string bash_completion() {
  std::string values, options;
  for (const JobOption& option : job_options()) {
    const std::vector<std::string> words = value_words(option);
    if (!takes_path(option) && !words.empty())
      values += "    --" + option.name + ") words='" + join(words, " ") + "' ;;\n";
  }
  for (const CommandRow& row : commands())
    options += "    '" + std::string(row.name) + "') words='" + join(options_of(row), " ") + "' ;;\n";
  return R"(# Completion of headspan in bash; made from the program's own tables.
_headspan() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} key='' command=${COMP_WORDS[1]} words=''
  # The shell splits --key=value into three words.
  if [[ $word == '=' ]]; then
    key=$before word=''
  elif [[ $before == '=' ]]; then
    key=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $before == --*.* ]]; then
    key=$before
  fi
  [[ $command == archive && $COMP_CWORD -gt 2 ]] && command="archive ${COMP_WORDS[2]}"
  COMPREPLY=()
  if [[ -n $key ]]; then
    case $key in
)" + values +
         R"(    *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    esac
  elif ((COMP_CWORD == 1)); then
    words=')" +
         join(command_words(), " ") +
         R"( --help --version'
  elif [[ $command == archive ]]; then
    words=')" +
         join(command_words("archive"), " ") +
         R"('
  elif [[ $word == -* ]]; then
    case $command in
)" + options +
         R"(    esac
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
  [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o filenames -F _headspan headspan
)";
}

std::string zsh_completion() {
  std::string names, cases, archive;
  std::set<std::string> groups;
  for (const CommandRow& row : commands()) {
    const auto [group, rest] = split_name(row);
    if (groups.insert(group).second)
      names += "    '" + group + ":" +
               zsh_text(rest.empty() ? row.summary : "code keys and values for storage") + "'\n";
    (rest.empty() ? cases : archive) +=
        "  " + (rest.empty() ? group : rest) + ") " + zsh_arguments(row) + "  ;;\n";
  }
  return "#compdef headspan\n# Completion of headspan in zsh; made from the program's own tables.\n"
         "_headspan_archive() {\n  local curcontext=$curcontext state line\n"
         "  _arguments -C '1:command:(" +
         join(command_words("archive"), " ") +
         ")' '*::argument:->argument'\n"
         "  [[ $state == argument ]] || return\n  case $line[1] in\n" +
         archive +
         "  esac\n}\n"
         "_headspan() {\n  local curcontext=$curcontext state line\n  local -a commands=(\n" +
         names +
         "  )\n  _arguments -C '--help[how it is called]' '--version[versions of headspan and its "
         "libraries]' "
         "'1:command:->command' '*::argument:->argument'\n"
         "  case $state in\n  command) _describe command commands; return ;;\n  argument) ;;\n  *) return "
         ";;\n  esac\n"
         "  case $line[1] in\n" +
         cases + "  archive) _headspan_archive ;;\n  esac\n}\n_headspan \"$@\"\n";
}

}  // namespace headspan
