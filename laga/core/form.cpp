#include "laga/core/form.h"

#include "laga/core/check.h"

namespace laga {

const Form& find_form(std::string_view name) {
  std::string known;
  for (const Form& form : kForms) {
    if (form.name == name) return form;
    known += (known.empty() ? "" : ", ") + std::string(form.name);
  }
  throw InvalidArgument(
      detail::concat("[find_form] unknown form '", name, "'. Known: ", known));
}

} // namespace laga
