// Systems as JSON; every number of a file names its source.
#include "laga/core/json_fields.h"
#include "laga/core/json_library.h"
#include "laga/plan/system.h"

#include <filesystem>
#include <set>

namespace laga {

namespace {

using detail::Json;
using detail::JsonFields;

constexpr detail::JsonLibrary kSystems{
    "load_system",
    "system",
    "Systems",
    "a system's JSON file (docs/accounting.md)",
    "LAGA_SYSTEMS",
    "configs/systems",
    LAGA_SYSTEM_DIR};

const Json& required(const JsonFields& fields, std::string_view field) {
  const Json* object = fields.nested(field);
  if (object == nullptr) fields.fail(field, "an object");
  return *object;
}

double positive(const JsonFields& fields, std::string_view field) {
  const auto number = fields.number_above(field, 0);
  if (!number) fields.fail(field, "a positive number");
  return *number;
}

double not_negative(const JsonFields& fields, std::string_view field) {
  const auto number = fields.number(field);
  if (number && !(*number >= 0)) fields.fail(field, "0 or a positive number");
  return number.value_or(0);
}

// [[size, rate], ...], sizes rising; or one number for all sizes.
Curve curve(const JsonFields& fields, const std::string& field) {
  constexpr const char* kMust =
      "a positive number, or pairs [size, rate] of positive numbers with "
      "rising sizes";
  const Json* value = fields.find(field);
  if (value == nullptr) fields.fail(field, kMust);
  if (value->is_number()) return {{{1, positive(fields, field)}}};
  Curve curve;
  if (!value->is_array() || value->empty()) fields.fail(field, kMust);
  for (const Json& pair : *value) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() ||
        !pair[1].is_number()) {
      fields.fail(field, kMust);
    }
    const double size = pair[0].get<double>(), rate = pair[1].get<double>();
    const double last = curve.points.empty() ? 0 : curve.points.back().first;
    if (!(size > last) || !(rate > 0)) fields.fail(field, kMust);
    curve.points.emplace_back(size, rate);
  }
  return curve;
}

std::map<std::string, Link> links(
    const JsonFields& top, const std::string& field) {
  const JsonFields fields = top.within(field, required(top, field));
  std::map<std::string, Link> links;
  for (const auto& [op, ignored] : fields.object().items()) {
    static const std::set<std::string> kOps{
        "any", "all_to_all", "all_gather", "reduce_scatter", "send"};
    if (kOps.count(op) == 0) {
      fields.fail_with(detail::concat(
          field,
          ".",
          op,
          " is no operation: any, all_to_all, all_gather, reduce_scatter, "
          "send"));
    }
    const JsonFields link = fields.within(op, required(fields, op));
    links[op] = {
        not_negative(link, "latency_us"),
        not_negative(link, "per_peer_us"),
        curve(link, "gb_per_s")};
  }
  if (links.count("any") == 0) fields.fail("any", "an object");
  return links;
}

AttentionRates attention_rates(const JsonFields& fields) {
  return {
      curve(fields, "head_forward"),
      curve(fields, "head_backward"),
      curve(fields, "latent_forward"),
      curve(fields, "latent_backward")};
}

void check_dtype(const JsonFields& fields, const std::string& name) {
  try {
    parse_dtype(name);
  } catch (const InvalidArgument& error) {
    fields.fail_with(error.what());
  }
}

std::map<std::string, std::string> sources(const JsonFields& top) {
  const JsonFields fields = top.within("sources", required(top, "sources"));
  std::map<std::string, std::string> sources;
  for (const char* field :
       {"memory_gb",
        "memory_gb_per_s",
        "within_node",
        "between_nodes",
        "gemm_tflop_per_s",
        "attention_tflop_per_s"}) {
    sources[field] = fields.text(field);
    if (sources[field].empty()) {
      fields.fail(field, "text that says where the numbers come from");
    }
  }
  return sources;
}

} // namespace

System parse_system(std::string_view json, const std::string& name) {
  const Json root = detail::parse_object(json, name, "load_system");
  const JsonFields top(root, name, "", "load_system");
  System system;
  system.name = name;
  system.description = top.text("description");
  system.ranks_per_node =
      static_cast<int>(top.positive_integer("ranks_per_node"));
  system.memory_gb = positive(top, "memory_gb");
  system.ranks_share_rates = top.flag("ranks_share_rates").value_or(false);
  system.memory_gb_per_s = positive(top, "memory_gb_per_s");
  system.within_node = links(top, "within_node");
  system.between_nodes = links(top, "between_nodes");
  const JsonFields gemm =
      top.within("gemm_tflop_per_s", required(top, "gemm_tflop_per_s"));
  for (const auto& [dtype, ignored] : gemm.object().items()) {
    check_dtype(gemm, dtype);
    system.gemm_tflop_per_s[dtype] = curve(gemm, dtype);
  }
  const JsonFields attention = top.within(
      "attention_tflop_per_s", required(top, "attention_tflop_per_s"));
  for (const auto& [dtype, ignored] : attention.object().items()) {
    check_dtype(attention, dtype);
    system.attention_tflop_per_s[dtype] =
        attention_rates(attention.within(dtype, required(attention, dtype)));
  }
  system.sources = sources(top);
  return system;
}

System load_system(std::string_view name_or_path) {
  const std::filesystem::path path = kSystems.path_of(name_or_path);
  System system = parse_system(kSystems.read(path), path.string());
  system.name = path.stem().string();
  return system;
}

std::vector<std::string> system_names() {
  return kSystems.names();
}

} // namespace laga
