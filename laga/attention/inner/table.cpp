// The table of inner attentions.
#include "laga/attention/inner/inner.h"
#include "laga/core/check.h"

#include <algorithm>
#include <array>

namespace laga {

namespace {

const std::array<const InnerAttention*, 5> kInners{
    &kEagerAttention,
    &kSdpaAttention,
    &kFusedAttention,
    &kStreamAttention,
    &kStreamSdpaAttention};

// LAGA alone has the latent at hand and wants keys and values.
bool streams(const Form& form) {
  return form.key == KeyPath::kLatent && form.space == ScoreSpace::kHead;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

} // namespace

const InnerAttention& on_device(
    const InnerAttention& inner, const at::Device& device) {
  if (device.is_cpu() || !inner.cpu_only) return inner;
  LAGA_CHECK(
      inner.elsewhere != nullptr,
      "inner attention '",
      inner.name,
      "' runs on the CPU only, and the tensors are on ",
      device,
      ": ",
      kSdpaAttention.name,
      " and ",
      kEagerAttention.name,
      " run there");
  return *inner.elsewhere;
}

const InnerAttention& find_inner(std::string_view name) {
  for (const InnerAttention* inner : kInners) {
    if (inner->name == name) return *inner;
  }
  throw InvalidArgument(detail::concat(
      "[find_inner] unknown inner attention '",
      name,
      "'. Known: ",
      listed(inner_names())));
}

const InnerAttention& find_inner(std::string_view name, const Form& form) {
  const InnerAttention& inner = find_inner(name);
  const std::vector<std::string> usable = inners_for(form);
  LAGA_CHECK(
      std::find(usable.begin(), usable.end(), name) != usable.end(),
      "form ",
      form.name,
      " cannot use inner attention '",
      name,
      "'. It can use: ",
      listed(usable));
  return inner;
}

std::vector<std::string> inner_names() {
  std::vector<std::string> names;
  for (const InnerAttention* inner : kInners) {
    names.emplace_back(inner->name);
  }
  return names;
}

std::vector<std::string> inners_for(const Form& form) {
  std::vector<std::string> names;
  for (const InnerAttention* inner : kInners) {
    if (!inner->forward_latent || streams(form)) {
      names.emplace_back(inner->name);
    }
  }
  return names;
}

std::string_view default_inner(const Form& form) {
  return streams(form) ? kStreamAttention.name : kFusedAttention.name;
}

} // namespace laga
