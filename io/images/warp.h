// SPDX-License-Identifier: Apache-2.0
//
// Shears, shifts and rotations of uint8 images [height, width, channels], of the nearest pixel and black outside. Every
// bit is that of Pillow's Image.transform and Image.rotate with the matrices of torchvision's affine(), for images of
// up to 32767 pixels a side: Pillow then computes in 16.16 fixed point, and this always.
#pragma once

#include <array>
#include <cstdint>

namespace convoy {

/// Where a pixel of the output comes from: x = m[0] x' + m[1] y' + m[2], y = m[3] x' + m[4] y' + m[5].
using AffineMatrix = std::array<double, 6>;

/// Each row moves by level pixels a row, to the left if level is above 0: affine(shear=[atan(level), 0], center=[0,
/// 0]).
[[nodiscard]] AffineMatrix shear_x_matrix(double level);
/// Each column moves by level pixels a column, upwards if level is above 0.
[[nodiscard]] AffineMatrix shear_y_matrix(double level);
/// To the right and downwards, in whole pixels.
[[nodiscard]] AffineMatrix shift_matrix(int right, int down);
/// Around the centre of an image of this size, counter-clockwise: Image.rotate(degrees).
[[nodiscard]] AffineMatrix rotation_matrix(double degrees, int height, int width);

/// `out` must not overlap the image.
void warp_image(const std::uint8_t* image, int height, int width, int channels, const AffineMatrix& matrix,
                std::uint8_t* out);

}  // namespace convoy
