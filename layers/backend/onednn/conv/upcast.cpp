// SPDX-License-Identifier: Apache-2.0
#include "layers/backend/onednn/conv/upcast.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "layers/backend/onednn/conv/im2col_gemm.h"
#include "layers/backend/onednn/onednn_state.h"

namespace convoy {

namespace {

constexpr std::int64_t kPartBytes = 5 << 19;  // 2.5 MiB of float32 on both sides: some second-level caches' worth
constexpr std::int64_t kMinRows = 256;        // of a product, so that its weight is worth reading

// The images [first, first + count) of x.
Tensor images_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  return x.view(first * x.shape().sample_size(), x.shape().with_batch(count));
}

Tensor upcast(Backend& backend, const Tensor& x) {
  Tensor wide = backend.tensor(x.shape(), DType::kF32);
  backend.run(ops::Cast{x, wide});
  return wide;
}

class UpcastDirection final : public Direction {
 public:
  UpcastDirection(std::unique_ptr<Direction> inner, std::int64_t images)
      : Direction(inner->weights()), inner_(std::move(inner)), images_(images) {}

  void run(OnednnState& state, Backend& backend, const Tensor& from, void* weight, void* bias,
           const Tensor& to) override {
    for (std::int64_t image = 0; image < from.shape()[0]; image += images_) {
      const Tensor part = images_of(to, image, images_), sums = backend.tensor(part.shape(), DType::kF32);
      inner_->run(state, backend, upcast(backend, images_of(from, image, images_)), weight, bias, sums);
      backend.run(ops::Cast{sums, part});
    }
  }

 private:
  std::unique_ptr<Direction> inner_;
  std::int64_t images_;
};

class UpcastGradient final : public WeightGradient {
 public:
  UpcastGradient(std::unique_ptr<WeightGradient> inner, std::int64_t images)
      : WeightGradient(inner->format()), inner_(std::move(inner)), images_(images) {}

  void run(OnednnState& state, Backend& backend, const Tensor& x, const Tensor& dy, const Tensor& dw,
           const Tensor& dbias) override {
    Tensor part_dw = dw, part_dbias = dbias;
    for (std::int64_t image = 0; image < x.shape()[0]; image += images_) {
      inner_->run(state, backend, upcast(backend, images_of(x, image, images_)),
                  upcast(backend, images_of(dy, image, images_)), part_dw, part_dbias);
      if (image == 0) {  // it has set the sums, the others are added to them
        part_dw = backend.tensor(dw.shape(), DType::kF32);
        if (dbias) part_dbias = backend.tensor(dbias.shape(), DType::kF32);
        continue;
      }
      backend.run(ops::Axpy{1.0F, part_dw, dw});
      if (dbias) backend.run(ops::Axpy{1.0F, part_dbias, dbias});
    }
  }

 private:
  std::unique_ptr<WeightGradient> inner_;
  std::int64_t images_;
};

}  // namespace

std::int64_t images_of_part(const OnednnState& state, const Shape& x, const Shape& y) {
  const std::int64_t images = x[0];
  if (!state.upcasts) return images;
  const std::int64_t image_bytes = (x.sample_size() + y.sample_size()) * std::int64_t{sizeof(float)};
  const std::int64_t rows = y.pixels();
  return images_at_a_time(images, kPartBytes / image_bytes, (kMinRows + rows - 1) / rows);
}

std::unique_ptr<Direction> in_parts(const OnednnState& state, std::unique_ptr<Direction> inner, std::int64_t images) {
  if (!state.upcasts) return inner;
  return std::make_unique<UpcastDirection>(std::move(inner), images);
}

std::unique_ptr<WeightGradient> in_parts(const OnednnState& state, std::unique_ptr<WeightGradient> inner,
                                         std::int64_t images) {
  if (!state.upcasts) return inner;
  return std::make_unique<UpcastGradient>(std::move(inner), images);
}

}  // namespace convoy
