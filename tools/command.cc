#include "command.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "cli.h"
#include "report/escape.h"

namespace shadowgraph::cli {
namespace {

int refuse(const std::string& sentence, const std::string& verb) {
  write_stderr(fmt::format("shadowgraph: {}\nSee `shadowgraph {}--help`.\n",
                           escape_controls(sentence), verb.empty() ? "" : verb + " "));
  return kUsage;
}

/// What CLI11 says of words that it did not expect, and the verb that was meant.
std::string usage_sentence(const CLI::App& app, const CLI::ParseError& error, int argc,
                           const char* const* argv) {
  std::string sentence = error.what();
  if (argc < 2 || !app.get_subcommands().empty() || argv[1][0] == '-') return sentence;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  sentence = fmt::format("'{}' is not a verb", argv[1]);
  const auto meant = nearest(argv[1], verbs);
  return meant.empty() ? sentence : sentence + "; did you mean " + meant[0] + "?";
}

}  // namespace

const Option& Option::required() const {
  option_->required();
  return *this;
}

const Option& Option::excludes(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}

bool Option::given() const { return option_->count() > 0; }

Command::Command(CLI::App& program, const std::string& name, const std::string& sentence,
                 const std::string& examples)
    : app_(program.add_subcommand(name, sentence)) {
  app_->footer("Examples:\n" + examples);
  app_->set_help_flag("-h,--help", "Print this help and exit");
}

Option Command::flag(const std::string& name, bool& target, const std::string& help) {
  return Option(app_->add_flag(name, target, help));
}

Option Command::text(const std::string& name, std::string& target, const std::string& help,
                     const std::string& type) {
  return Option(app_->add_option(name, target, help)->type_name(type));
}

Option Command::texts(const std::string& name, std::vector<std::string>& target,
                      const std::string& help, const std::string& type, char delimiter) {
  return Option(app_->add_option(name, target, help)->type_name(type)->delimiter(delimiter));
}

Option Command::parsed(const std::string& name,
                       const std::function<void(const std::string&)>& parse,
                       const std::string& help, const std::string& type) {
  const auto checked = [name, parse](const std::string& text) {
    try {
      parse(text);
    } catch (const BadValue& why) {
      throw CLI::ValidationError(name, why.what());
    }
  };
  return Option(app_->add_option_function<std::string>(name, checked, help)->type_name(type));
}

Option Command::each(const std::string& name, const std::function<void(const std::string&)>& take,
                     const std::string& help, const std::string& type, char delimiter) {
  const auto take_all = [take](const std::vector<std::string>& values) {
    for (const std::string& value : values) take(value);
  };
  return Option(app_->add_option_function<std::vector<std::string>>(name, take_all, help)
                    ->type_name(type)
                    ->expected(1)
                    ->delimiter(delimiter)
                    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Option Command::names(const std::string& name, std::vector<std::string>& target,
                      const std::string& type, const std::string& help) {
  return each(
      name, [&target](const std::string& value) { target.push_back(value); }, help, type, ',');
}

int run_verb(const ProgramTexts& texts, const std::vector<Verb (*)(CLI::App&)>& verbs, int argc,
             const char* const* argv) {
  CLI::App app(texts.sentence, texts.name);
  app.footer(texts.footer);
  app.set_version_flag("--version", texts.version,
                       "Print version, compiler and instruction sets, and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(0, 1);  // none: said below, after what is wrong
  std::vector<Verb> added;
  for (const auto& add : verbs) {
    added.push_back(add(app));
    added.back().command.app().set_version_flag("--version", texts.version,
                                                "Print the version and exit");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    const int code = app.exit(success, text, text);
    write_stdout(text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    const auto parsed = app.get_subcommands();
    return refuse(usage_sentence(app, error, argc, argv),
                  parsed.empty() ? "" : parsed[0]->get_name());
  }
  for (const Verb& verb : added) {
    if (!verb.command.app().parsed()) continue;
    try {
      return verb.run();
    } catch (const UsageError& error) {
      return refuse(error.what(), verb.command.app().get_name());
    }
  }
  return refuse("a verb is missing", "");
}

}  // namespace shadowgraph::cli
