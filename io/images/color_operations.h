// SPDX-License-Identifier: Apache-2.0
//
// Changes of the colours of uint8 images, in place. `pixels` RGB pixels, or grey ones with channels = 1. Every bit is
// that of Pillow: ImageEnhance, ImageOps, and torchvision's adjust_hue of PIL images.
#pragma once

#include <cstdint>

namespace convoy {

/// ImageEnhance.Brightness: towards black (factor 0) or away from it.
void adjust_brightness(std::uint8_t* image, std::int64_t pixels, int channels, float factor);
/// ImageEnhance.Contrast: towards the mean grey of the image (factor 0) or away from it.
void adjust_contrast(std::uint8_t* image, std::int64_t pixels, int channels, float factor);
/// ImageEnhance.Color: towards the grey of each pixel (factor 0) or away from it. Grey images stay as they are.
void adjust_saturation(std::uint8_t* image, std::int64_t pixels, int channels, float factor);
/// Turns the hue by `turn` of a circle, in [-0.5, 0.5]: to HSV of 8 bits each and back. Grey images stay as they are.
void turn_hue(std::uint8_t* image, std::int64_t pixels, int channels, double turn);

/// ImageOps.posterize: keeps the upper `bits` of each value, 1 to 8.
void posterize(std::uint8_t* image, std::int64_t pixels, int channels, int bits);
/// ImageOps.solarize: inverts values of at least `threshold`.
void solarize(std::uint8_t* image, std::int64_t pixels, int channels, double threshold);
/// ImageOps.autocontrast: scales the values of each channel linearly, from its least to its largest, to 0 to 255.
void stretch_contrast(std::uint8_t* image, std::int64_t pixels, int channels);
/// ImageOps.equalize: makes the histogram of each channel as even as a table of values can.
void equalize(std::uint8_t* image, std::int64_t pixels, int channels);

}  // namespace convoy
