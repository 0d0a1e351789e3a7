#include "laga/core/check.h"
#include "laga/core/safetensors.h"
#include "laga/core/safetensors_header.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

static_assert(
    std::endian::native == std::endian::little,
    "the format's numbers are copied as they are");

namespace laga {

namespace {

[[noreturn]] void refuse_file(
    const std::string& path, const std::string& what) {
  throw InvalidArgument(
      detail::concat("[read_safetensors] ", path, ": ", what));
}

// Reads rather than maps: a mapped file that shrinks kills the program.
void read_at(
    int file,
    int64_t offset,
    int64_t count,
    void* destination,
    const std::string& path,
    const std::string& what) {
  auto* bytes = static_cast<char*>(destination);
  while (count > 0) {
    // One call moves at most 2 GiB on Linux.
    constexpr int64_t kPiece = int64_t{1} << 30;
    const ssize_t got = pread(
        file, bytes, static_cast<size_t>(std::min(count, kPiece)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      refuse_file(path, what + " cannot be read: " + std::strerror(errno));
    }
    if (got == 0) refuse_file(path, what + " is truncated");
    bytes += got;
    offset += got;
    count -= got;
  }
}

// Throws where it is not a file; the caller closes what it gets.
int open_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    refuse_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  }
  return file;
}

uint64_t size_of_file(int file, const std::string& path) {
  struct stat info {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    refuse_file(path, "is not a file");
  }
  return static_cast<uint64_t>(info.st_size);
}

struct HeaderText {
  std::string text;
  uint64_t data_bytes = 0;
};

HeaderText read_header(int file, const std::string& path) {
  const uint64_t size = size_of_file(file, path);
  if (size < detail::kLengthBytes) {
    refuse_file(
        path,
        detail::concat(
            "truncated: ", size, " bytes, the header's length takes 8"));
  }
  uint64_t length = 0;
  read_at(file, 0, detail::kLengthBytes, &length, path, "the header's length");
  if (length > detail::kLongestHeader) {
    refuse_file(
        path,
        detail::concat(
            "a header of ",
            length,
            " bytes (at most ",
            detail::kLongestHeader,
            "): not a safetensors file, or damaged"));
  }
  const uint64_t rest = size - detail::kLengthBytes;
  if (length > rest) {
    refuse_file(
        path,
        detail::concat(
            "truncated: the header takes ",
            length,
            " bytes, the file has ",
            rest,
            " after the header's length"));
  }
  HeaderText header{std::string(length, '\0'), rest - length};
  read_at(
      file,
      detail::kLengthBytes,
      static_cast<int64_t>(length),
      header.text.data(),
      path,
      "the header");
  return header;
}

} // namespace

SafetensorsReader::SafetensorsReader(std::string path)
    : path_(std::move(path)), file_(open_file(path_)) {
  try {
    const HeaderText text = read_header(file_, path_);
    detail::SafetensorsHeader header =
        detail::parse_safetensors_header(text.text, text.data_bytes, path_);
    tensors_ = std::move(header.tensors);
    metadata_ = std::move(header.metadata);
    for (auto& [name, tensor] : tensors_) {
      tensor.begin +=
          static_cast<int64_t>(detail::kLengthBytes + text.text.size());
    }
  } catch (...) {
    close(file_);
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() {
  close(file_);
}

const StoredTensor& SafetensorsReader::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse_file(path_, name + " is missing");
  return found->second;
}

void SafetensorsReader::read(const std::string& name, void* destination) const {
  const StoredTensor& tensor = at(name);
  read_at(file_, tensor.begin, tensor.nbytes, destination, path_, name);
}

} // namespace laga
