#include "laga/comm/mpi/message.h"

#include "laga/comm/arguments.h"
#include "laga/core/check.h"

#include <algorithm>
#include <cstring>

namespace laga::mpi {

namespace {

// The part of a message that has one size; sizes and texts follow it. All ranks
// run one program on one kind of machine, so the bytes are sent as they are.
struct Head {
  Kind kind;
  int32_t world;
  uint64_t group;
  int64_t number;
  uint64_t text_hash;
  int32_t tag;
  Phase phase;
  uint32_t ranks;
  uint32_t op_length;
  uint32_t group_name_length;
  uint32_t text_length;
};

constexpr size_t kLongestOp = 32;
constexpr size_t kLongestGroupName = 256;
constexpr size_t kLongestText =
    largest_message(0) - sizeof(Head) - kLongestOp - kLongestGroupName;

std::string cut_off(const std::string& text, size_t longest) {
  if (text.size() <= longest) return text;
  return text.substr(0, longest - 3) + "...";
}

} // namespace

std::vector<std::byte> encode(const Message& message) {
  const std::string texts[] = {
      cut_off(message.op, kLongestOp),
      cut_off(message.group_name, kLongestGroupName),
      cut_off(message.text, kLongestText)};
  const Head head{
      message.kind,
      message.world,
      message.group,
      message.number,
      message.text_hash,
      message.tag,
      message.phase,
      static_cast<uint32_t>(message.bytes_to.size()),
      static_cast<uint32_t>(texts[0].size()),
      static_cast<uint32_t>(texts[1].size()),
      static_cast<uint32_t>(texts[2].size())};
  std::vector<std::byte> bytes;
  const auto append = [&](ConstBytes part) {
    if (part.empty()) return;
    const size_t end = bytes.size();
    bytes.resize(end + part.size());
    std::memcpy(bytes.data() + end, part.data(), part.size());
  };
  append(std::as_bytes(std::span(&head, 1)));
  append(std::as_bytes(std::span(message.bytes_to)));
  append(std::as_bytes(std::span(message.bytes_from)));
  for (const std::string& text : texts)
    append(std::as_bytes(std::span(text)));
  return bytes;
}

Message decode(ConstBytes bytes) {
  ConstBytes rest = bytes;
  const auto fill = [&](Bytes target) {
    if (target.empty()) return;
    std::memcpy(target.data(), rest.data(), target.size());
    rest = rest.subspan(target.size());
  };
  const auto take = [&](uint32_t length) {
    std::string text(length, '\0');
    fill(std::as_writable_bytes(std::span(text)));
    return text;
  };
  Head head;
  fill(std::as_writable_bytes(std::span(&head, 1)));
  Message message;
  message.kind = head.kind;
  message.world = head.world;
  message.group = head.group;
  message.number = head.number;
  message.text_hash = head.text_hash;
  message.tag = head.tag;
  message.phase = head.phase;
  message.bytes_to.resize(head.ranks);
  fill(std::as_writable_bytes(std::span(message.bytes_to)));
  message.bytes_from.resize(head.ranks);
  fill(std::as_writable_bytes(std::span(message.bytes_from)));
  message.op = take(head.op_length);
  message.group_name = take(head.group_name_length);
  message.text = take(head.text_length);
  return message;
}

// FNV-1a, 64 bits.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

// The finaliser of splitmix64 over both.
uint64_t hash_of(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool same_call(const Message& a, const Message& b) {
  return a.op == b.op && a.phase == b.phase && a.text_hash == b.text_hash;
}

std::string describe(const Message& call) {
  return detail::concat(
      laga::describe({call.phase, call.text}, call.op),
      " (#",
      call.number,
      ")");
}

} // namespace laga::mpi
