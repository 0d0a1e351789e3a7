#include "laga/plan/tape.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace laga {

int64_t TapeTensor::bytes() const {
  int64_t product = number_bytes;
  for (const Dim& dim : shape)
    product *= dim.size;
  return product;
}

int64_t MemoryTape::bytes_at(int moment) const {
  int64_t bytes = 0;
  for (const TapeTensor& tensor : tensors) {
    if (tensor.alive_at(moment)) bytes += tensor.bytes();
  }
  return bytes;
}

int MemoryTape::peak() const {
  std::vector<int64_t> change(static_cast<size_t>(moments) + 1, 0);
  for (const TapeTensor& tensor : tensors) {
    change[static_cast<size_t>(tensor.born)] += tensor.bytes();
    change[static_cast<size_t>(tensor.dies)] -= tensor.bytes();
  }
  int64_t alive = 0, most = 0;
  int peak = 0;
  for (int moment = 0; moment < moments; ++moment) {
    alive += change[static_cast<size_t>(moment)];
    if (alive > most) {
      most = alive;
      peak = moment;
    }
  }
  return peak;
}

std::vector<TapeTensor> MemoryTape::alive_at(int moment) const {
  std::vector<TapeTensor> alive;
  std::copy_if(
      tensors.begin(),
      tensors.end(),
      std::back_inserter(alive),
      [moment](const TapeTensor& tensor) { return tensor.alive_at(moment); });
  return alive;
}

TapeRecorder::Handle TapeRecorder::make(
    std::string name, std::vector<Dim> shape, int64_t number_bytes) {
  const size_t index = tape_->tensors.size();
  tape_->tensors.push_back(
      {std::move(name), std::move(shape), number_bytes, tape_->moments, -1});
  ++tape_->moments;
  Handle handle;
  handle.owners_ = std::shared_ptr<const size_t>(
      new size_t(index), [tape = tape_](const size_t* dying) {
        tape->tensors[*dying].dies = tape->moments;
        delete dying;
      });
  return handle;
}

void TapeRecorder::end_forward() {
  tape_->forward_end = tape_->moments++;
}

MemoryTape TapeRecorder::take() const {
  MemoryTape tape = *tape_;
  for (TapeTensor& tensor : tape.tensors) {
    if (tensor.dies < 0) tensor.dies = tape.moments;
  }
  return tape;
}

} // namespace laga
