#include "cli/names.h"

#include "laga/attention/inner/inner.h"
#include "laga/core/form.h"

#include <CLI/CLI.hpp>

namespace laga::cli {

std::vector<std::string> parse_forms(const std::string& text) {
  std::vector<std::string> forms;
  if (text == "all") {
    for (const Form& form : kForms) {
      forms.emplace_back(form.name);
    }
    return forms;
  }
  for (const std::string& name : CLI::detail::split(text, ',')) {
    forms.emplace_back(find_form(name).name);
  }
  return forms;
}

std::vector<std::string> parse_inners(const std::string& text) {
  if (text == "all") return inner_names();
  std::vector<std::string> inners;
  for (const std::string& name : CLI::detail::split(text, ',')) {
    inners.emplace_back(find_inner(name).name);
  }
  return inners;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

} // namespace laga::cli
