// SPDX-License-Identifier: Apache-2.0
//
// Antialiased bilinear resizing of a box of an image, as Pillow's Image.resize(size, BILINEAR, box): a triangle filter
// that reaches one pixel, of the coarser of both grids, to either side. Relies on 16-bit fixed-point weights.
// Invariant: the vector code and the plain one give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace convoy {

/// 8-bit pixels, [height, width, channels], or a part of such an image.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  int width = 0, height = 0, channels = 0;
  std::size_t stride = 0;  ///< bytes from row to row
};

/// In pixels of a view; pixel (0, 0) covers [0, 1) x [0, 1).
struct ResizeBox {
  double left = 0, top = 0, width = 0, height = 0;
};

class Resizer {
 public:
  /// Writes `box` of `image` as width x height pixels to `out`, mirrored left to right if `flip`. At the box's edges
  /// the filter reaches over them, as far as the view goes: to crop first, give a view of the crop. 1 or 3 channels.
  void resize(const ImageView& image, const ResizeBox& box, int width, int height, bool flip, std::uint8_t* out);
  /// The same without vector instructions, for comparison.
  void resize_plainly(const ImageView& image, const ResizeBox& box, int width, int height, bool flip,
                      std::uint8_t* out);

  /// Of one axis: output pixel i is the sum of `taps` source pixels from first[i] on.
  struct Filter {
    int taps = 0;                       ///< even
    std::vector<int> first;             ///< [outputs]
    std::vector<std::int16_t> weights;  ///< [outputs, taps], each row sums to 2^14; 0 behind the last source pixel
  };

 private:
  template <class Row, class Column>
  void run(const ImageView& image, const ResizeBox& box, int width, int height, bool flip, std::uint8_t* out,
           const Row& combine_rows, const Column& combine_columns);

  Filter across_, down_;
  std::vector<double> exact_;              // weights of one output pixel
  std::vector<const std::uint8_t*> taps_;  // rows of one output row
  std::vector<std::int16_t> row_;          // one output row before its columns are combined
};

}  // namespace convoy
