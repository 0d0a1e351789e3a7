#include "laga/attention/product.h"

#include "laga/attention/inner/kernel_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <cstdlib>
#include <memory>
#include <new>

namespace laga {

namespace {

// A tile's scratch belongs to its thread, as BLAS's does, and like that is not
// in the memory accounts: on another processor there is none.
void* thread_scratch(int64_t bytes) {
  struct Free {
    void operator()(void* memory) const {
      std::free(memory);
    }
  };
  thread_local std::unique_ptr<void, Free> scratch;
  if (!scratch) {
    scratch.reset(std::aligned_alloc(64, static_cast<size_t>(bytes)));
    if (!scratch) throw std::bad_alloc();
  }
  return scratch.get();
}

bool fits(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kBFloat16 &&
         (x.stride(0) == 1 || x.stride(1) == 1);
}

const Bf16* numbers(const at::Tensor& x) {
  return static_cast<const Bf16*>(x.const_data_ptr());
}

// By our kernels, where they are the faster ones; whether they were.
bool multiplied(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (!fits(a) || !fits(b) || !fits(out) || out.stride(1) != 1) return false;
  const kernels::Kernels<Bf16>& k = kernels::kernels<Bf16>();
  if (!k.matmul_tile) return false;
  kernels::MatmulParams<Bf16> p;
  p.m = a.size(0);
  p.k = a.size(1);
  p.n = b.size(1);
  p.a = numbers(a);
  p.a_row = a.stride(0);
  p.a_column = a.stride(1);
  p.b = numbers(b);
  p.b_row = b.stride(0);
  p.b_column = b.stride(1);
  p.c = static_cast<Bf16*>(out.mutable_data_ptr());
  p.c_row = out.stride(0);
  const int64_t bytes = k.matmul_scratch_bytes();
  at::parallel_for(0, p.tiles(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile)
      k.matmul_tile(p, tile, thread_scratch(bytes));
  });
  return true;
}

at::Tensor empty_product(const at::Tensor& a, const at::Tensor& b) {
  return at::empty({a.size(0), b.size(1)}, a.options());
}

} // namespace

void product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (!multiplied(out, a, b)) at::mm_out(out, a, b);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor out = empty_product(a, b);
  product_into(out, a, b);
  return out;
}

at::Tensor product_plus(
    const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor out = empty_product(a, b);
  if (multiplied(out, a, b)) return out.add_(bias);
  return at::addmm_out(out, bias, a, b);
}

} // namespace laga
