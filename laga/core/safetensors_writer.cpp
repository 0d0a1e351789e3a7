#include "laga/core/check.h"
#include "laga/core/safetensors.h"
#include "laga/core/safetensors_header.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace laga {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void disk_failed(const std::string& path) {
  throw std::runtime_error(detail::concat(
      "[write_safetensors] writing ", path, " failed: ", std::strerror(errno)));
}

// Removes what it wrote unless it was kept.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path)
      : path_(path),
        unfinished_(detail::concat(path, ".", getpid(), ".unfinished")),
        file_(open(
            unfinished_.c_str(),
            O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
            0666)) {
    if (file_ < 0) {
      throw InvalidArgument(detail::concat(
          "[write_safetensors] cannot write ",
          path,
          ": ",
          std::strerror(errno)));
    }
  }

  ~UnfinishedFile() {
    if (file_ >= 0) close(file_);
    if (!kept_) unlink(unfinished_.c_str());
  }

  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  void write(const void* data, int64_t count) {
    const auto* bytes = static_cast<const char*>(data);
    while (count > 0) {
      constexpr int64_t kPiece = int64_t{1} << 30;
      const ssize_t put =
          ::write(file_, bytes, static_cast<size_t>(std::min(count, kPiece)));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) disk_failed(path_);
      bytes += put;
      count -= put;
    }
  }

  // The data must be on the disk before the name is: a power cut in between
  // would leave a whole name for half a file.
  void keep() {
    if (fsync(file_) != 0 || close(std::exchange(file_, -1)) != 0 ||
        std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
      disk_failed(path_);
    }
    kept_ = true;
    flush_folder();
  }

 private:
  // The file is whole either way; where a folder cannot be flushed, the system
  // does it later.
  void flush_folder() const {
    const std::string folder =
        std::filesystem::absolute(path_).parent_path().string();
    const int handle = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (handle < 0) return;
    fsync(handle);
    close(handle);
  }

  std::string path_;
  std::string unfinished_;
  int file_;
  bool kept_ = false;
};

int64_t checked_bytes(const TensorBytes& tensor) {
  for (const char* dtype : {"BF16", "F32", "F64", "I64"}) {
    if (tensor.dtype != dtype) continue;
    int64_t bytes = safetensors_dtype_size(dtype);
    for (const int64_t dim : tensor.shape) {
      LAGA_CHECK_GE(dim, 0, tensor.name);
      LAGA_CHECK(
          !__builtin_mul_overflow(bytes, dim, &bytes),
          tensor.name,
          " has more bytes than 2^63");
    }
    return bytes;
  }
  throw InvalidArgument(detail::concat(
      "[write_safetensors] ",
      tensor.name,
      ": dtype ",
      tensor.dtype,
      " is not written. Known: BF16, F32, F64, I64"));
}

// Wide dtypes first: then every tensor begins at a multiple of its own.
std::vector<TensorBytes> in_file_order(std::vector<TensorBytes> tensors) {
  std::stable_sort(
      tensors.begin(),
      tensors.end(),
      [](const TensorBytes& a, const TensorBytes& b) {
        return safetensors_dtype_size(a.dtype) >
               safetensors_dtype_size(b.dtype);
      });
  return tensors;
}

std::string header_of(
    const std::vector<TensorBytes>& tensors,
    const SafetensorsMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t begin = 0;
  for (const TensorBytes& tensor : tensors) {
    LAGA_CHECK(
        tensor.name != "__metadata__" && !header.contains(tensor.name),
        "two tensors, or the metadata, are named ",
        tensor.name);
    const int64_t end = begin + checked_bytes(tensor);
    header[tensor.name] = {
        {"dtype", tensor.dtype},
        {"shape", tensor.shape},
        {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    throw InvalidArgument(
        "[write_safetensors] a name or the metadata is not valid UTF-8");
  }
  constexpr size_t kAlignment = 8; // the widest dtype's
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  LAGA_CHECK(
      text.size() <= detail::kLongestHeader,
      "the header has ",
      text.size(),
      " bytes, readers take ",
      detail::kLongestHeader);
  return text;
}

} // namespace

void write_safetensors(
    const std::string& path,
    const std::vector<TensorBytes>& tensors,
    const SafetensorsMetadata& metadata) {
  const std::vector<TensorBytes> ordered = in_file_order(tensors);
  const std::string header = header_of(ordered, metadata);
  UnfinishedFile file(path);
  const uint64_t length = header.size();
  file.write(&length, detail::kLengthBytes);
  file.write(header.data(), static_cast<int64_t>(header.size()));
  for (const TensorBytes& tensor : ordered) {
    file.write(tensor.data, checked_bytes(tensor));
  }
  file.keep();
}

} // namespace laga
