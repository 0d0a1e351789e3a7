#include "laga/core/safetensors_header.h"

#include "laga/core/check.h"
#include "laga/core/json_fields.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace laga {

namespace {

struct KnownDtype {
  std::string_view name;
  int64_t size;
};

// Whole bytes only. A checkpoint may hold tensors of dtypes that nobody here
// computes in, and their sizes have to be known to check the file.
constexpr std::array kDtypes = std::to_array<KnownDtype>({
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"F8_E8M0", 1},
    {"U16", 2},
    {"I16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"U32", 4},
    {"I32", 4},
    {"F32", 4},
    {"U64", 8},
    {"I64", 8},
    {"F64", 8},
    {"C64", 8},
});

} // namespace

int64_t safetensors_dtype_size(std::string_view dtype) {
  for (const KnownDtype& known : kDtypes) {
    if (known.name == dtype) return known.size;
  }
  return 0;
}

std::string to_string(const StoredTensor& tensor) {
  std::string text = tensor.dtype + " [";
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  }
  return text + "]";
}

namespace detail {

namespace {

constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void refuse_file(const std::string& path, std::string_view what) {
  throw InvalidArgument(concat("[read_safetensors] ", path, ": ", what));
}

// A name from a damaged file may be long, or hold anything.
std::string shortened(const std::string& name) {
  constexpr size_t kLongest = 200;
  return name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
}

// nlohmann's parser keeps the last of two equal keys without a word.
class DuplicateKeys {
 public:
  explicit DuplicateKeys(const std::string& path) : path_(path) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    // The file, a tensor, its shape: nothing is deeper.
    constexpr int kDeepest = 3;
    if (depth > kDeepest) refuse_file(path_, "the header is nested too deep");
    if (event == Json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      const bool of_tensor = open_.size() > 1;
      if (!open_.back().insert(key).second) {
        refuse_file(
            path_,
            (of_tensor ? shortened(tensor_) + ": " : "") + shortened(key) +
                " is there twice");
      }
      if (!of_tensor) tensor_ = key;
    }
    return true;
  }

 private:
  const std::string& path_;
  std::string tensor_; // the one being read
  std::vector<std::set<std::string>> open_;
};

Json parse(std::string_view text, const std::string& path) {
  if (text.empty() || text.front() != '{') {
    refuse_file(path, "the header does not begin with {");
  }
  try {
    return Json::parse(text, DuplicateKeys(path));
  } catch (const Json::exception&) {
    // Its message quotes the header, which may be long and is of no help.
    refuse_file(path, "the header is not valid JSON");
  }
}

// One tensor's object, with the name in every message.
class Entry {
 public:
  Entry(const Json& object, const std::string& name, const std::string& path)
      : object_(object), name_(name), path_(path) {}

  [[noreturn]] void fail(std::string_view what) const {
    refuse_file(path_, concat(shortened(name_), ": ", what));
  }

  std::vector<int64_t> whole_numbers(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end() || !found->is_array()) {
      fail(concat(field, " must be a list of whole numbers"));
    }
    std::vector<int64_t> numbers;
    for (const Json& number : *found) {
      // Negative, broken and larger than 64 bits are other JSON types.
      constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
      if (!number.is_number_unsigned() || number.get<uint64_t>() > kLargest) {
        fail(concat(
            field,
            " must be a list of whole numbers below 2^63 (got ",
            shown(number),
            ")"));
      }
      numbers.push_back(number.get<int64_t>());
    }
    return numbers;
  }

  std::string dtype() const {
    const auto found = object_.find("dtype");
    if (found == object_.end() || !found->is_string()) {
      fail("dtype must be a string");
    }
    const auto& dtype = found->get_ref<const std::string&>();
    if (safetensors_dtype_size(dtype) == 0) {
      fail(concat("unknown dtype ", shortened(dtype)));
    }
    return dtype;
  }

 private:
  const Json& object_;
  const std::string& name_;
  const std::string& path_;
};

StoredTensor parse_tensor(
    const Json& object, const std::string& name, const std::string& path) {
  const Entry entry(object, name, path);
  if (!object.is_object()) entry.fail("must be an object");
  StoredTensor tensor;
  tensor.dtype = entry.dtype();
  tensor.shape = entry.whole_numbers("shape");
  const std::vector<int64_t> offsets = entry.whole_numbers("data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    entry.fail("data_offsets must be [begin, end] with begin <= end");
  }
  int64_t nbytes = safetensors_dtype_size(tensor.dtype);
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(nbytes, dim, &nbytes)) {
      entry.fail(to_string(tensor) + " has more bytes than 2^63");
    }
  }
  tensor.begin = offsets[0];
  tensor.nbytes = offsets[1] - offsets[0];
  if (nbytes != tensor.nbytes) {
    entry.fail(concat(
        to_string(tensor),
        " takes ",
        nbytes,
        " bytes, but data_offsets span ",
        tensor.nbytes));
  }
  return tensor;
}

SafetensorsMetadata parse_metadata(
    const Json& object, const std::string& path) {
  if (!object.is_object()) {
    refuse_file(path, concat(kMetadata, " must be an object"));
  }
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) {
      refuse_file(
          path, concat(kMetadata, ": ", shortened(key), " must be a string"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

using Named = std::pair<const std::string, StoredTensor>;

// Each tensor begins where the one before ends, and the last ends with the
// file: nothing is read twice, and no byte of a file goes unread.
void check_extents(
    const std::map<std::string, StoredTensor>& tensors,
    int64_t data_bytes,
    const std::string& path) {
  std::vector<const Named*> order;
  for (const Named& tensor : tensors)
    order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    return std::pair(a->second.begin, a->second.nbytes) <
           std::pair(b->second.begin, b->second.nbytes);
  });
  int64_t end = 0;
  std::string before = "the header";
  for (const Named* tensor : order) {
    const auto& [name, place] = *tensor;
    if (place.begin != end) {
      refuse_file(
          path,
          concat(
              shortened(name),
              place.begin < end ? " overlaps " : " leaves a gap after ",
              before,
              " (begins at ",
              place.begin,
              " instead of ",
              end,
              ")"));
    }
    end = place.begin + place.nbytes; // both were read as offsets below 2^63
    before = shortened(name);
    if (end > data_bytes) {
      refuse_file(
          path,
          concat(
              before,
              " ends at byte ",
              end,
              " of the data, but the file has ",
              data_bytes,
              " of them: it is truncated"));
    }
  }
  if (end != data_bytes) {
    refuse_file(
        path, concat(data_bytes - end, " bytes too many follow ", before));
  }
}

} // namespace

SafetensorsHeader parse_safetensors_header(
    std::string_view json, uint64_t data_bytes, const std::string& path) {
  const Json root = parse(json, path);
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(value, path);
    } else {
      header.tensors[name] = parse_tensor(value, name, path);
    }
  }
  check_extents(header.tensors, static_cast<int64_t>(data_bytes), path);
  return header;
}

} // namespace detail
} // namespace laga
