// SPDX-License-Identifier: Apache-2.0
#include "io/data/image_dataset.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "io/data/sampler.h"
#include "io/images/decode_tools.h"
#include "layers/base/random.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

// Not of an image but of the file that holds it: it is damaged (data.verify), or this host has not got it.
bool is_of_file(const Error& error) { return error.code() == ExitCode::kUsage || !host_at_fault(error).empty(); }

constexpr std::int64_t kReplacements = 20;  // that are tried

// Kept by each thread from sample to sample.
DecodeTools& tools() {
  thread_local DecodeTools own;
  return own;
}

}  // namespace

ImageDataset::ImageDataset(std::unique_ptr<EncodedImages> images, std::string source, const Options& options)
    : images_(std::move(images)), options_(options), broken_(std::move(source), images_->size(), options.max_broken) {}

ImageHeader ImageDataset::open(std::int64_t index) const {
  DecodeTools& own = tools();
  images_->read(index, own.bytes);
  const ImageHeader header = own.decoder.open(own.bytes);
  if (header.alpha && !alpha_told_.exchange(true)) {
    broken_.remark_once(images_->name(index), "has transparency, which is dropped, here and in all other images");
  }
  return header;
}

void ImageDataset::decode(std::int64_t index, const SampleId& sample, std::uint8_t* out) const {
  DecodeTools& own = tools();
  const ImageHeader header = open(index);
  const Augmentation& wanted = options_.augmentation;
  SampleRandom random(options_.seed, sample);
  const int size = static_cast<int>(options_.size.at(sample.epoch));
  if (wanted.crop) {
    const PixelBox part = random_resized_crop(header.width, header.height, wanted, random);
    const bool flip = wanted.flip && random.coin();
    const ResizeBox box{static_cast<double>(part.left), static_cast<double>(part.top), static_cast<double>(part.width),
                        static_cast<double>(part.height)};
    own.decode_box(part, box, 1, {size, size, options_.channels, flip}, out);
  } else {
    const bool flip = wanted.flip && random.coin();
    const int resize = options_.resize > 0 ? options_.resize : static_cast<int>(std::lround(size * 256.0 / 224.0));
    own.decode_central(header, resize, {size, size, options_.channels, flip}, out);
  }
  change_image(out, size, size, options_.channels, wanted, random);
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
      if (is_of_file(error)) fail_as(error, fmt::format("{}: {}", images_->name(index), error.what()));
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
    if (is_of_file(error)) fail_as(error, fmt::format("{}: {}", images_->name(sample.index), error.what()));
    problem = error.what();
  }
  broken_.note(sample.index, images_->name(sample.index), problem);
  replace(sample, out);
}

}  // namespace convoy
