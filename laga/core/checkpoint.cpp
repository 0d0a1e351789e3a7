#include "laga/core/checkpoint.h"

#include "laga/core/check.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

namespace laga {

namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kEnd = ".safetensors";

[[noreturn]] void refuse_file(const fs::path& path, const std::string& what) {
  throw InvalidArgument(
      detail::concat("[read_checkpoint] ", path.string(), ": ", what));
}

// The index if there is one, else the only safetensors file.
fs::path file_in(const fs::path& folder) {
  std::error_code error;
  if (fs::is_regular_file(folder / kIndexName, error)) {
    return folder / kIndexName;
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == kEnd) files.push_back(entry->path());
  }
  if (files.size() != 1) {
    refuse_file(
        folder,
        detail::concat(
            "holds no ",
            kIndexName,
            " and ",
            files.size(),
            " files *",
            kEnd,
            ". Name one"));
  }
  return files.front();
}

nlohmann::json weight_map_of(const fs::path& index) {
  std::ifstream stream(index, std::ios::binary);
  if (!stream) refuse_file(index, "cannot be opened");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
  if (root.is_discarded()) refuse_file(index, "not valid JSON");
  if (!root.is_object() || !root.contains("weight_map") ||
      !root["weight_map"].is_object()) {
    refuse_file(index, "weight_map must be an object");
  }
  return root["weight_map"];
}

std::map<std::string, std::string> files_of_index(const fs::path& index) {
  std::map<std::string, std::string> files;
  const nlohmann::json map = weight_map_of(index);
  for (const auto& [name, value] : map.items()) {
    const fs::path file =
        value.is_string() ? value.get<std::string>() : std::string();
    // A plain name: an index that came from elsewhere must not lead out of its
    // folder.
    if (file.extension() != kEnd || file.filename() != file) {
      refuse_file(
          index,
          detail::concat(
              name, ": must lie in a file *", kEnd, " beside the index"));
    }
    files[name] = (index.parent_path() / file).string();
  }
  return files;
}

// ---- layers -----------------------------------------------------------------

// The gradients in a file that holds a layer's results as well
// (tests/reference); no model calls a module so.
constexpr const char* kGradients = "grad.";

std::vector<std::string> layer_prefixes(const Checkpoint& checkpoint) {
  const std::string mark = "kv_a_proj_with_mqa.weight";
  std::vector<std::string> prefixes;
  for (const std::string& name : checkpoint.names()) {
    if (name.size() < mark.size() ||
        name.compare(name.size() - mark.size(), mark.size(), mark) != 0) {
      continue;
    }
    const std::string prefix = name.substr(0, name.size() - mark.size());
    const bool whole_word = prefix.empty() || prefix.back() == '.';
    if (whole_word && prefix != kGradients) prefixes.push_back(prefix);
  }
  return prefixes;
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char letter) {
           return std::isdigit(letter) != 0;
         });
}

// The first part that is a number: 3 in "model.layers.3.self_attn.0.".
std::string layer_number(const std::string& prefix) {
  for (size_t begin = 0; begin < prefix.size();) {
    const size_t end = prefix.find('.', begin);
    const std::string part = prefix.substr(begin, end - begin);
    if (is_number(part)) return part;
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return {};
}

bool is_asked_for(const std::string& prefix, const std::string& layer) {
  if (layer.empty()) return true;
  if (is_number(layer)) return layer_number(prefix) == layer;
  return prefix == layer || prefix == layer + ".";
}

// All of them would be a screen full for a large model.
std::string shown(const std::vector<std::string>& prefixes) {
  constexpr size_t kMost = 6;
  std::string list;
  for (size_t i = 0; i < std::min(kMost, prefixes.size()); ++i) {
    list += (i == 0 ? "\"" : ", \"") + prefixes[i] + '"';
  }
  if (prefixes.size() > kMost) {
    list += detail::concat(" and ", prefixes.size() - kMost, " more");
  }
  return prefixes.empty() ? "none" : list;
}

// "model.layers.10." after "model.layers.9.".
bool in_reading_order(const std::string& a, const std::string& b) {
  const std::string x = layer_number(a), y = layer_number(b);
  return std::pair(x.size(), x) != std::pair(y.size(), y)
             ? std::pair(x.size(), x) < std::pair(y.size(), y)
             : a < b;
}

} // namespace

Checkpoint::Checkpoint(const std::string& path) {
  std::error_code ignored;
  const fs::path file =
      fs::is_directory(path, ignored) ? file_in(path) : fs::path(path);
  path_ = file.string();
  if (file.extension() == ".json") {
    places_ = files_of_index(file);
    return;
  }
  open_[path_] = std::make_unique<SafetensorsReader>(path_);
  for (const auto& [name, tensor] : open_[path_]->tensors()) {
    places_[name] = path_;
  }
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(places_.size());
  for (const auto& [name, file] : places_)
    names.push_back(name);
  return names;
}

const SafetensorsReader& Checkpoint::file_of(const std::string& name) {
  const auto place = places_.find(name);
  if (place == places_.end()) refuse_file(path_, name + " is missing");
  std::unique_ptr<SafetensorsReader>& file = open_[place->second];
  try {
    if (file == nullptr) {
      file = std::make_unique<SafetensorsReader>(place->second);
    }
    file->at(name);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        detail::concat(error.what(), " (it should hold ", name, ")"));
  }
  return *file;
}

std::string find_layer_prefix(
    const Checkpoint& checkpoint, const std::string& layer) {
  std::vector<std::string> all = layer_prefixes(checkpoint);
  std::sort(all.begin(), all.end(), in_reading_order);
  std::vector<std::string> asked_for;
  for (const std::string& prefix : all) {
    if (is_asked_for(prefix, layer)) asked_for.push_back(prefix);
  }
  if (asked_for.size() == 1) return asked_for.front();
  if (all.empty()) {
    refuse_file(
        checkpoint.path(),
        "holds no attention layer: kv_a_proj_with_mqa.weight is missing");
  }
  refuse_file(
      checkpoint.path(),
      asked_for.empty()
          ? detail::concat("has no layer ", layer, ". There are: ", shown(all))
          : detail::concat(
                "has several layers, choose one by its number or by what ",
                "precedes its names: ",
                shown(asked_for)));
}

} // namespace laga
