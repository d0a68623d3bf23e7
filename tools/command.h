// The command line of a verb: its options, each with its help. CLI11 stands behind command.cc only,
// since its header costs every file that includes it ten seconds of compiling.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shadowgraph::cli {

/// Thrown by an option's parser: why it refuses a value. The user reads it behind the option's
/// name.
struct BadValue : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An option of a command, for what it needs, excludes, and whether it was given.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  const Option& required() const;
  const Option& excludes(const Option& other) const;
  /// After the command line was parsed.
  bool given() const;

 private:
  CLI::Option* option_;
};

/// A verb's options. Targets outlive the command.
class Command {
 public:
  /// examples: printed below the options.
  Command(CLI::App& program, const std::string& name, const std::string& sentence,
          const std::string& examples);

  Option flag(const std::string& name, bool& target, const std::string& help);
  /// type: how the help names the value.
  Option text(const std::string& name, std::string& target, const std::string& help,
              const std::string& type = "TEXT");
  /// All words up to the next option; delimiter: also splits a word, 0: nothing does.
  Option texts(const std::string& name, std::vector<std::string>& target, const std::string& help,
               const std::string& type = "TEXT", char delimiter = 0);
  /// One value, which parse takes or refuses with BadValue.
  Option parsed(const std::string& name, const std::function<void(const std::string&)>& parse,
                const std::string& help, const std::string& type);
  /// May be given more than once, with one value each; delimiter: splits a value into several.
  Option each(const std::string& name, const std::function<void(const std::string&)>& take,
              const std::string& help, const std::string& type, char delimiter = 0);
  /// The same into a list: --backend a,b --backend c.
  Option names(const std::string& name, std::vector<std::string>& target, const std::string& type,
               const std::string& help);

  /// A number from low to high, written out in full: no blanks, suffixes or other bases.
  template <class T>
  Option number(const std::string& name, T& target, T low, T high, const std::string& help) {
    const auto parse = [&target, low, high](const std::string& text) {
      T value{};
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool whole = error == std::errc() && end == text.data() + text.size();
      if (!whole || !(value >= low && value <= high))
        throw BadValue(fmt::format("'{}' is not a number from {} to {}", text, low, high));
      target = value;
    };
    return parsed(name, parse, help, "N");
  }

  /// One of the named values.
  template <class T>
  Option choice(const std::string& name, T& target,
                const std::vector<std::pair<std::string, T>>& values, const std::string& help) {
    std::string all;
    for (const auto& [value_name, value] : values) all += (all.empty() ? "" : "|") + value_name;
    const auto parse = [&target, values, all](const std::string& text) {
      for (const auto& [value_name, value] : values) {
        if (text != value_name) continue;
        target = value;
        return;
      }
      throw BadValue("'" + text + "' is not one of " + all);
    };
    return parsed(name, parse, help, all);
  }

  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

/// A verb: its command line, and what to do once that is parsed. run returns an exit code.
struct Verb {
  Command command;
  std::function<int()> run;
};

/// The texts of the program's own help.
struct ProgramTexts {
  std::string sentence, name, footer;
  std::function<std::string()> version;
};

/// Parses the command line and runs the verb that it names. Returns an exit code.
int run_verb(const ProgramTexts& texts, const std::vector<Verb (*)(CLI::App&)>& verbs, int argc,
             const char* const* argv);

}  // namespace shadowgraph::cli
