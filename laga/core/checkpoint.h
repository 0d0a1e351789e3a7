// A model's tensors as they lie on the disk: one safetensors file, or several
// behind an index as Hugging Face writes large models.
#pragma once

#include "laga/core/safetensors.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace laga {

/// Whatever is wrong with a file throws InvalidArgument naming it and, where it
/// is one tensor's fault, the tensor. Files are opened when first needed: the
/// layer of a model with hundreds of them needs one or two. Not for several
/// threads at once.
class Checkpoint {
 public:
  /// A safetensors file, an index (*.json with a weight_map), or a folder that
  /// holds model.safetensors.index.json or exactly one *.safetensors.
  explicit Checkpoint(const std::string& path);

  const std::string& path() const {
    return path_;
  }

  /// Sorted.
  std::vector<std::string> names() const;

  bool contains(const std::string& name) const {
    return places_.count(name) > 0;
  }

  /// The file that holds a tensor. Throws InvalidArgument where there is no
  /// such tensor, or the index names a file that lacks it.
  const SafetensorsReader& file_of(const std::string& name);

 private:
  std::string path_;
  std::map<std::string, std::string> places_; // path of the file, by tensor
  std::map<std::string, std::unique_ptr<SafetensorsReader>> open_; // by path
};

/// What precedes the names of one attention layer's tensors, such as
/// "model.layers.3.self_attn."; "" where they have nothing before them. A layer
/// is recognised by its kv_a_proj_with_mqa.weight. `layer` chooses among
/// several: "" the only one; a number, that of the layer; else the prefix
/// itself, with or without its last dot. Throws InvalidArgument listing the
/// layers there are.
std::string find_layer_prefix(
    const Checkpoint& checkpoint, const std::string& layer = "");

} // namespace laga
