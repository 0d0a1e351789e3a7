// The safetensors format: the length of a header (8 bytes), the header (JSON),
// and the tensors' bytes one after another. Numbers are little-endian.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace laga {

using SafetensorsMetadata = std::map<std::string, std::string>;

/// Bytes of one number of a dtype by the format's name for it ("BF16", "I64",
/// ...); 0 for a name that is not known.
int64_t safetensors_dtype_size(std::string_view dtype);

/// Where a tensor lies.
struct StoredTensor {
  std::string dtype; // as the format writes it
  std::vector<int64_t> shape;
  int64_t begin = 0; // in the file, header included
  int64_t nbytes = 0;
};

/// "BF16 [64, 128]".
std::string to_string(const StoredTensor& tensor);

/// A file that is open for reading. The header has been checked in full: sizes
/// fit shapes and dtypes, and the tensors fill the file without overlap, gap or
/// rest. Whatever is wrong with a file throws InvalidArgument naming it and,
/// where it is one tensor's fault, the tensor.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(std::string path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::string& path() const {
    return path_;
  }

  const std::map<std::string, StoredTensor>& tensors() const {
    return tensors_;
  }

  const SafetensorsMetadata& metadata() const {
    return metadata_;
  }

  /// Throws InvalidArgument where there is no such tensor.
  const StoredTensor& at(const std::string& name) const;

  /// The tensor's bytes into `destination` [at(name).nbytes].
  void read(const std::string& name, void* destination) const;

 private:
  std::string path_;
  int file_ = -1;
  std::map<std::string, StoredTensor> tensors_;
  SafetensorsMetadata metadata_;
};

/// A tensor to write: contiguous, row-major.
struct TensorBytes {
  std::string name;
  std::string dtype; // BF16, F32, F64 or I64
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

/// Writes a file that has all of it or is not there: under the name
/// PATH.<pid>.unfinished, flushed to the disk and then renamed. If that fails,
/// nothing is left behind and a file that was there before stays as it was.
/// Every tensor begins at a multiple of its dtype's size. Throws
/// InvalidArgument for what cannot be written or a path that cannot be opened,
/// std::runtime_error where the disk fails.
void write_safetensors(
    const std::string& path,
    const std::vector<TensorBytes>& tensors,
    const SafetensorsMetadata& metadata = {});

} // namespace laga
