// SPDX-License-Identifier: Apache-2.0
#include "io/image_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/sampler.h"
#include "layers/base/random.h"

namespace convoy {

namespace {

constexpr std::int64_t kReplacements = 20;  // that are tried
// An evaluation is to see what torchvision sees: it takes a smaller decoding only where the filter that follows halves
// that once more (mean difference per image below 1/255). For training any that is large enough will do.
constexpr int kFinerForEvaluation = 2;

// Kept by each thread from sample to sample.
struct Tools {
  std::vector<std::byte> bytes;
  JpegDecoder decoder;
  Resizer resizer;
};

Tools& tools() {
  thread_local Tools own;
  return own;
}

// The whole pixels that the box touches, and `more` around them, as far as there are any.
PixelBox pixels_around(const ResizeBox& box, int more, int width, int height) {
  const int left = std::max(0, static_cast<int>(std::floor(box.left)) - more);
  const int top = std::max(0, static_cast<int>(std::floor(box.top)) - more);
  const int right = std::min(width, static_cast<int>(std::ceil(box.left + box.width)) + more);
  const int bottom = std::min(height, static_cast<int>(std::ceil(box.top + box.height)) + more);
  return {left, top, right - left, bottom - top};
}

// `part` of what was decoded, and `box`, both of the full image, in terms of each other.
std::pair<ImageView, ResizeBox> view_of(const JpegPixels& d, const PixelBox& part, const ResizeBox& box) {
  const auto in = [&](double full, double origin, int limit) {
    return std::clamp((full - origin) * d.scale, 0.0, static_cast<double>(limit));
  };
  const int left = static_cast<int>(std::floor(in(part.left, d.left, d.width - 1)));
  const int top = static_cast<int>(std::floor(in(part.top, d.top, d.height - 1)));
  const int right = static_cast<int>(std::ceil(in(part.left + part.width, d.left, d.width)));
  const int bottom = static_cast<int>(std::ceil(in(part.top + part.height, d.top, d.height)));
  const auto channels = static_cast<std::size_t>(d.channels);
  const std::size_t stride = static_cast<std::size_t>(d.width) * channels;
  const ImageView view{d.pixels + static_cast<std::size_t>(top) * stride + static_cast<std::size_t>(left) * channels,
                       right - left, bottom - top, d.channels, stride};
  return {view,
          {(box.left - d.left) * d.scale - left, (box.top - d.top) * d.scale - top, box.width * d.scale,
           box.height * d.scale}};
}

}  // namespace

ImageDataset::ImageDataset(std::unique_ptr<EncodedImages> images, std::string source, const Options& options)
    : images_(std::move(images)), options_(options), broken_(std::move(source), images_->size(), options.max_broken) {}

void ImageDataset::decode(std::int64_t index, const SampleId& sample, std::uint8_t* out) const {
  Tools& own = tools();
  images_->read(index, own.bytes);
  const JpegHeader header = own.decoder.open(own.bytes);
  const Augmentation& wanted = options_.augmentation;
  SampleRandom random(options_.seed, sample);
  const int size = options_.size;
  PixelBox part;
  ResizeBox box;
  if (wanted.crop) {
    part = random_resized_crop(header.width, header.height, wanted, random);
    box = {static_cast<double>(part.left), static_cast<double>(part.top), static_cast<double>(part.width),
           static_cast<double>(part.height)};
  } else {
    box = central_box(header.width, header.height, options_.resize, size);
    const int reach = static_cast<int>(std::ceil(std::max({1.0, box.width / size, box.height / size})));
    part = pixels_around(box, reach, header.width, header.height);
  }
  const bool flip = wanted.flip && random.coin();
  const int least = wanted.crop ? size : size * kFinerForEvaluation;
  const JpegPixels decoded = own.decoder.decode(part, least, least, options_.channels);
  const auto [view, from] = view_of(decoded, part, box);
  own.resizer.resize(view, from, size, size, flip, out);
  if (wanted.jitter) {
    jitter_colors(out, std::int64_t{size} * size, options_.channels, wanted.strength, random);
  }
}

const std::vector<std::int64_t>& ImageDataset::members(std::int64_t label) const {
  std::call_once(classes_listed_, [&] {
    members_.resize(static_cast<std::size_t>(images_->classes()));
    for (std::int64_t i = 0; i < images_->size(); ++i) {
      members_[static_cast<std::size_t>(images_->label(i))].push_back(i);
    }
  });
  return members_[static_cast<std::size_t>(label)];
}

// Walks its class in an order of the sample's own, up to one that can be decoded.
void ImageDataset::replace(const SampleId& sample, std::uint8_t* out) const {
  const auto& others = members(images_->label(sample.index));
  const auto count = static_cast<std::int64_t>(others.size());
  const Permutation order(
      count, random_bits(random_key(options_.seed, "replacement"), static_cast<std::uint64_t>(sample.index)));
  std::int64_t tried = 0;
  for (std::int64_t i = 0; i < count && tried < kReplacements; ++i) {
    const std::int64_t index = others[static_cast<std::size_t>(order(i))];
    if (index == sample.index) continue;
    ++tried;
    try {
      decode(index, sample, out);
      return;
    } catch (const Error& error) {
      broken_.note(index, images_->name(index), error.what());
    }
  }
  fail("{} is broken, and so are all {} others of its class that were tried in its place (repair them)",
       images_->name(sample.index), tried);
}

void ImageDataset::read(const SampleId& sample, void* input, std::int64_t* label, float* /*target*/) const {
  if (sample.index < 0 || sample.index >= size()) fail("{}: sample {} of {}", broken_.source(), sample.index, size());
  if (label != nullptr) *label = images_->label(sample.index);
  if (input == nullptr) return;
  auto* out = static_cast<std::uint8_t*>(input);
  std::string problem;
  try {
    decode(sample.index, sample, out);
    return;
  } catch (const Error& error) {
    problem = error.what();
  }
  broken_.note(sample.index, images_->name(sample.index), problem);
  replace(sample, out);
}

}  // namespace convoy
