// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/command_table.hpp"
#include "lang/diagnostics.hpp"
#include "lang/module.hpp"

namespace plimsoll::cli {

namespace {

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

/// Names of the prelude, which files may add to.
std::string known(const char* kind) {
  Diagnostics ignored;
  return joined(compile("", "layout none { }", ignored).names(kind));
}

std::string command_names(const std::vector<CommandRow>& table) {
  std::vector<std::string> names;
  for (const CommandRow& command : table) names.push_back(command.name);
  return joined(names);
}

/// The text without what a shell reads in single quotes, and for zsh in brackets.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':')
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}
std::string fish_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// Shell code that prints the jobs or layouts of "$file".
constexpr const char* kJobs =
    R"(plimsoll check "$file" 2>/dev/null | awk '$1 == "train" || $1 == "serve" { print $2 }')";
constexpr const char* kLayouts =
    R"(plimsoll check "$file" 2>/dev/null | awk '$1 == "layout" { print $2 }')";

std::string bash_value(const OptionRow& option) {
  const auto words = [](const std::string& list) {
    return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", list);
  };
  switch (option.kind) {
    case ValueKind::words:
      return words(joined(option.words));
    case ValueKind::framework:
      return words(known("framework"));
    case ValueKind::gpu:
      return words(known("gpu"));
    case ValueKind::job:
      return fmt::format("COMPREPLY=($(compgen -W \"$({})\" -- \"$cur\"))", kJobs);
    case ValueKind::layout:
      return fmt::format("COMPREPLY=($(compgen -W \"$({})\" -- \"$cur\"))", kLayouts);
    case ValueKind::file:
      return "COMPREPLY=($(compgen -f -- \"$cur\"))";
    default:
      return "COMPREPLY=()";
  }
}

std::string bash(const std::vector<CommandRow>& table) {
  std::string values, options, arguments;
  for (const CommandRow& command : table) {
    std::vector<std::string> names = {"--help"};
    for (const OptionRow& option : command.options) {
      names.push_back(option.name);
      if (option.kind != ValueKind::none)
        values += fmt::format("    {}:{}) {}; return ;;\n", command.name, option.name,
                              bash_value(option));
    }
    options += fmt::format("      {}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")) ;;\n",
                           command.name, joined(names));
    if (!command.words.empty())
      arguments += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n",
                               command.name, joined(command.words));
    else if (command.argument.empty())
      arguments += fmt::format("    {}) return ;;\n", command.name);
  }
  return fmt::format(
      R"sh(# Completes plimsoll in bash: eval "$(plimsoll completions bash)", or put it in
# ~/.local/share/bash-completion/completions/plimsoll
_plimsoll() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= file= i
  for ((i = 1; i < ${{#COMP_WORDS[@]}}; i++)); do
    case ${{COMP_WORDS[i]}} in
      -*) ;;
      *.plan) file=${{COMP_WORDS[i]}} ;;
      *) if [[ -z $command && $i -lt $COMP_CWORD ]]; then command=${{COMP_WORDS[i]}}; fi ;;
    esac
  done
  COMPREPLY=()
  if [[ -z $command ]]; then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$cur"))
    return
  fi
  case $command:$prev in
{}  esac
  if [[ $cur == -* && $cur != - ]]; then
    case $command in
{}    esac
    return
  fi
  case $command in
{}  esac
  COMPREPLY=($(compgen -f -X '!*.plan' -- "$cur") $(compgen -d -- "$cur"))
}}
complete -o filenames -F _plimsoll plimsoll
)sh",
      command_names(table), values, options, arguments);
}

std::string zsh_value(const OptionRow& option) {
  switch (option.kind) {
    case ValueKind::none:
      return "";
    case ValueKind::words:
      return fmt::format(":{}:({})", option.value, joined(option.words));
    case ValueKind::framework:
      return fmt::format(":framework:({})", known("framework"));
    case ValueKind::gpu:
      return fmt::format(":gpu:({})", known("gpu"));
    case ValueKind::job:
      return ":job:_plimsoll_jobs";
    case ValueKind::layout:
      return ":layout:_plimsoll_layouts";
    case ValueKind::file:
      return ":file:_files";
    case ValueKind::plain:
      return fmt::format(":{}: ", option.value);
  }
  return "";
}

std::string zsh(const std::vector<CommandRow>& table) {
  std::string commands, cases;
  for (const CommandRow& command : table) {
    commands += fmt::format("    '{}:{}'\n", command.name, quoted(command.description));
    cases += fmt::format("      {})\n        _arguments '--help[what it takes]'", command.name);
    for (const OptionRow& option : command.options)
      cases += fmt::format(" \\\n          '{}[{}]{}'", option.name, quoted(option.description),
                           zsh_value(option));
    if (!command.words.empty())
      cases += fmt::format(" \\\n          '1:{}:({})'", command.argument, joined(command.words));
    else if (!command.argument.empty())
      cases += " \\\n          '*:file:_files -g \"*.plan\"'";
    cases += " ;;\n";
  }
  return fmt::format(R"sh(#compdef plimsoll
# Completes plimsoll in zsh: put it as _plimsoll in a folder of $fpath, or, after compinit,
# source <(plimsoll completions zsh)
_plimsoll_names() {{
  local file=${{words[(r)*.plan]}}
  [[ -n $file ]] && compadd -- ${{(f)"$(plimsoll check "$file" 2>/dev/null | awk -v kinds="$1" 'index(kinds, $1 " ") {{ print $2 }}')"}}
}}
_plimsoll_jobs() {{ _plimsoll_names 'train serve ' }}
_plimsoll_layouts() {{ _plimsoll_names 'layout ' }}
_plimsoll() {{
  local state line
  local -a commands=(
{}  )
  _arguments -C '--help[the commands]' '--version[the version and what it was built with]' '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $words[1] in
{}      esac ;;
  esac
}}
if [ "$funcstack[1]" = "_plimsoll" ]; then _plimsoll "$@"; else compdef _plimsoll plimsoll; fi
)sh",
                     commands, cases);
}

std::string fish_value(const OptionRow& option) {
  switch (option.kind) {
    case ValueKind::none:
      return "";
    case ValueKind::words:
      return fmt::format(" -x -a '{}'", joined(option.words));
    case ValueKind::framework:
      return fmt::format(" -x -a '{}'", known("framework"));
    case ValueKind::gpu:
      return fmt::format(" -x -a '{}'", known("gpu"));
    case ValueKind::job:
      return " -x -a '(__plimsoll_names train serve)'";
    case ValueKind::layout:
      return " -x -a '(__plimsoll_names layout)'";
    case ValueKind::file:
      return " -r -F";
    case ValueKind::plain:
      return " -x";
  }
  return "";
}

std::string fish(const std::vector<CommandRow>& table) {
  std::string out =
      "# Completes plimsoll in fish: plimsoll completions fish > "
      "~/.config/fish/completions/plimsoll.fish\n"
      "function __plimsoll_names\n"
      "  set -l file (string match -r '^.*\\.plan$' -- (commandline -opc))\n"
      "  test -n \"$file[1]\"; and plimsoll check $file[1] 2>/dev/null | while read -l kind name "
      "rest\n"
      "    contains -- $kind $argv; and echo $name\n"
      "  end\n"
      "end\n"
      "function __plimsoll_plans\n"
      "  set -l token (commandline -ct)\n"
      "  for file in $token*.plan $token*/\n"
      "    echo $file\n"
      "  end\n"
      "end\n"
      "complete -c plimsoll -f\n"
      "complete -c plimsoll -n __fish_use_subcommand -l version -d 'The version and what it was "
      "built with'\n";
  for (const CommandRow& command : table) {
    const std::string seen =
        fmt::format("complete -c plimsoll -n '__fish_seen_subcommand_from {}'", command.name);
    out += fmt::format("complete -c plimsoll -n __fish_use_subcommand -a {} -d '{}'\n",
                       command.name, fish_quoted(command.description));
    for (const OptionRow& option : command.options)
      out += fmt::format("{} -l {}{} -d '{}'\n", seen, option.name.substr(2), fish_value(option),
                         fish_quoted(option.description));
    if (!command.words.empty())
      out += fmt::format("{} -a '{}'\n", seen, joined(command.words));
    else if (!command.argument.empty())
      out += seen + " -a '(__plimsoll_plans)'\n";
  }
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  const std::vector<CommandRow> table = command_table();
  if (shell == "bash") return bash(table);
  if (shell == "zsh") return zsh(table);
  PLIMSOLL_ASSERT(shell == "fish");
  return fish(table);
}

Outcome completions(const Options& options, const Terminal&) {
  return {kDone, completion_script(options.shell), ""};
}

}  // namespace plimsoll::cli
