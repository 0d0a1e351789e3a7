// Memory as a list of named tensors: each with its shape in named dimensions,
// the moment at which it comes and the moment at which it goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace laga {

struct Dim {
  std::string name; // "S/P", "n/P", "nope+v"
  int64_t size = 0;
};

/// A moment passes with every tensor that is born, and at the end of the
/// forward. A tensor is there at the moments born, born + 1, ..., dies - 1.
struct TapeTensor {
  std::string name; // "q", "latent gathered", "d_kv sent"
  std::vector<Dim> shape;
  int64_t number_bytes = 0;
  int born = 0;
  int dies = 0;

  int64_t bytes() const;
  bool alive_at(int moment) const {
    return born <= moment && moment < dies;
  }
};

/// Of one layer on one rank, forward and backward.
struct MemoryTape {
  std::vector<TapeTensor> tensors; // by birth
  int moments = 0;
  int forward_end = 0; // the moment between forward and backward

  int64_t bytes_at(int moment) const;
  /// The first moment at which most bytes are alive.
  int peak() const;
  std::vector<TapeTensor> alive_at(int moment) const;

  /// What waits for the backward; times layers in a model.
  int64_t saved_bytes() const {
    return bytes_at(forward_end);
  }
  int64_t peak_bytes() const {
    return bytes_at(peak());
  }
};

/// Writes a tape: a tensor dies with the last copy of its handle, as in torch.
class TapeRecorder {
 public:
  class Handle {
   public:
    Handle() = default;
    void reset() {
      owners_.reset();
    }
    bool lives() const {
      return static_cast<bool>(owners_);
    }

   private:
    friend class TapeRecorder;
    std::shared_ptr<const size_t> owners_;
  };

  Handle make(std::string name, std::vector<Dim> shape, int64_t number_bytes);
  void end_forward();
  /// Call it last: handles that still live are alive to the end.
  MemoryTape take() const;

 private:
  // Shared with the handles, which may outlive the recorder.
  std::shared_ptr<MemoryTape> tape_ = std::make_shared<MemoryTape>();
};

} // namespace laga
