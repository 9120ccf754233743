// SPDX-License-Identifier: Apache-2.0
#include "app/predict/prediction_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <system_error>
#include <utility>

#include "io/data/float_dataset.h"
#include "io/data/hdf5_shards.h"
#include "io/data/image_folder.h"
#include "io/data/shards.h"
#include "io/files/packed_bytes.h"
#include "io/hdf5/hdf5_source.h"
#include "io/images/decode_tools.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

// What a file begins with.
bool begins_with(const std::string& path, const std::vector<unsigned char>& magic) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 8> bytes{};
  file.read(bytes.data(), static_cast<std::streamsize>(magic.size()));
  return file.gcount() == static_cast<std::streamsize>(magic.size()) &&
         std::equal(magic.begin(), magic.end(), bytes.begin(),
                    [](unsigned char wanted, char found) { return wanted == static_cast<unsigned char>(found); });
}

const std::vector<unsigned char> kJpegMagic{0xff, 0xd8}, kHdf5Magic{0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
const std::vector<unsigned char> kPngMagic{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

/// Image files as encoded images without labels.
class ImageFiles final : public EncodedImages {
 public:
  explicit ImageFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(paths_.size()); }
  [[nodiscard]] std::int64_t label(std::int64_t /*index*/) const override { return 0; }
  [[nodiscard]] std::int64_t classes() const override { return 0; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return {}; }
  void check_labels(std::int64_t /*classes*/) const override {}
  [[nodiscard]] std::string name(std::int64_t index) const override { return paths_[static_cast<std::size_t>(index)]; }
  void read(std::int64_t index, std::vector<std::byte>& bytes) const override { read_image_file(name(index), bytes); }

 private:
  std::vector<std::string> paths_;
};

/// Encoded images as evaluation decodes them. Unlike ImageDataset it replaces no broken one.
class DecodedInputs final : public Dataset {
 public:
  /// shape: [C, size, size]. resize: the shorter side before the central crop; 0: size * 256 / 224.
  DecodedInputs(std::unique_ptr<EncodedImages> images, const Shape& shape, std::int64_t resize)
      : images_(std::move(images)),
        shape_(shape),
        resize_(resize > 0 ? static_cast<int>(resize)
                           : static_cast<int>(std::lround(static_cast<double>(shape[1]) * 256.0 / 224.0))) {}

  [[nodiscard]] std::int64_t size() const override { return images_->size(); }
  [[nodiscard]] Shape sample_shape() const override { return shape_; }
  [[nodiscard]] DType input_dtype() const override { return DType::kU8; }
  [[nodiscard]] std::int64_t target_size() const override { return 0; }
  [[nodiscard]] std::int64_t classes() const override { return 0; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return {}; }
  void read(const SampleId& sample, void* input, std::int64_t* /*label*/, float* /*target*/) const override {
    if (input == nullptr) return;
    thread_local DecodeTools own;
    try {
      images_->read(sample.index, own.bytes);
    } catch (const Error& error) {
      fail_alone_as(error, fmt::format("{}: {}", images_->name(sample.index), error.what()));
    }
    try {
      const ImageHeader header = own.decoder.open(own.bytes);
      const int size = static_cast<int>(shape_[1]);
      own.decode_central(header, resize_, {size, size, static_cast<int>(shape_[0]), false},
                         static_cast<std::uint8_t*>(input));
    } catch (const Error& error) {
      fail_usage("{}: broken image: {} (repair it, or leave it out)", images_->name(sample.index), error.what());
    }
  }

 private:
  std::unique_ptr<EncodedImages> images_;
  Shape shape_;
  int resize_;
};

std::unique_ptr<Dataset> decoded(std::unique_ptr<EncodedImages> images, const std::string& source, const Config& config,
                                 const Dataset& train) {
  const Shape shape = train.sample_shape();
  if (train.input_dtype() != DType::kU8 || shape.rank() != 3) {
    fail_usage("{}: the model takes float inputs {}, not images (give an HDF5 file with /inputs)", source, shape.str());
  }
  if (shape[1] != shape[2] || (shape[0] != 1 && shape[0] != 3)) {
    fail_usage("{}: the model takes images {}, which no JPEG or PNG becomes (give an HDF5 file with /images)", source,
               shape.str());
  }
  return std::make_unique<DecodedInputs>(std::move(images), shape, config.data.resize);
}

}  // namespace

bool is_hdf5_input(const std::string& source) {
  const std::string path = Hdf5Source(source).path;
  return !has_image_name(path) && (is_shard_pattern(path) || begins_with(path, kHdf5Magic));
}

std::vector<std::string> find_prediction_inputs(const std::vector<std::string>& inputs) {
  std::vector<std::string> sources;
  for (const std::string& input : inputs) {
    const std::string path = Hdf5Source(input).path;
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    if (fs::is_directory(status)) {
      for (std::string& image : images_below(input)) sources.push_back(std::move(image));
    } else if (is_shard_pattern(path)) {
      static_cast<void>(find_shards(path));
      sources.push_back(input);
    } else if (const fs::file_status file = fs::status(path, error); !fs::exists(file)) {
      if (file.type() == fs::file_type::none)
        fail_system(error.value(), "cannot look for {}: {}", path, error.message());
      fail_usage("there is no file or folder {}", path);
    } else if (!fs::is_regular_file(file)) {
      fail_usage("{}: neither a file nor a folder", path);
    } else if (!std::ifstream(path)) {
      fail_usage("{}: may not be read by this user (see its permissions)", path);
    } else if (begins_with(path, kHdf5Magic)) {
      sources.push_back(input);
    } else if (path == input && (begins_with(path, kJpegMagic) || begins_with(path, kPngMagic))) {
      sources.push_back(input);
    } else {
      fail_usage("{}: neither a JPEG, a PNG nor an HDF5 file (convert images of other formats)", path);
    }
  }
  return sources;
}

PredictionInputs::PredictionInputs(const std::vector<std::string>& sources, const Config& config, const Dataset& train,
                                   BytePacker* packer, ByteUnpacker* packed)
    : shape_(train.sample_shape()), dtype_(train.input_dtype()) {
  const DataOptions& d = config.data;
  std::vector<std::string> images;  // one after the other
  const auto add_images = [&] {
    if (images.empty()) return;
    const std::string first = images.front();
    auto files = std::make_shared<ImageFiles>(images);
    add(decoded(std::make_unique<ImageFiles>(std::exchange(images, {})), first, config, train),
        [files](std::int64_t index) { return files->name(index); });
  };
  const auto ask = [&](const auto& question) {
    const bool answer = packed != nullptr ? packed->number() != 0 : question();
    if (packer != nullptr) packer->number(answer ? 1 : 0);
    return answer;
  };
  const auto noted = [&](auto source) {
    if (packer != nullptr) source->pack(*packer);
    return source;
  };
  for (const std::string& source : sources) {
    if (!ask([&] { return is_hdf5_input(source); })) {
      images.push_back(source);
      continue;
    }
    add_images();
    std::unique_ptr<Dataset> data;
    if (ask([&] { return has_hdf5_jpegs(source); })) {
      auto jpegs = packed != nullptr ? unpack_hdf5_jpegs(source, *packed) : open_hdf5_jpegs(source, d.verify, false);
      data = decoded(noted(std::move(jpegs)), source, config, train);
    } else {
      data = noted(packed != nullptr ? unpack_hdf5(source, *packed)
                                     : open_hdf5(source, config.model.takes_signals(), d.verify, false));
      if (data->sample_shape() != shape_ || data->input_dtype() != dtype_) {
        fail_usage("{}: samples are {} {}, those of the training data {} {}", source, dtype_name(data->input_dtype()),
                   data->sample_shape().str(), dtype_name(dtype_), shape_.str());
      }
      if (dtype_ == DType::kF32) {
        data = std::make_unique<FloatDataset>(std::move(data),
                                              FloatDataset::Options{source, d.mean, d.std, d.allow_nonfinite});
      }
    }
    add(std::move(data), [source](std::int64_t index) { return fmt::format("{}[{}]", source, index); });
  }
  add_images();
}

void PredictionInputs::add(std::unique_ptr<Dataset> data, std::function<std::string(std::int64_t)> name) {
  const std::int64_t end = size() + data->size();
  parts_.push_back({std::move(data), std::move(name), end});
}

std::pair<const PredictionInputs::Part*, std::int64_t> PredictionInputs::find(std::int64_t index) const {
  const auto part = std::upper_bound(parts_.begin(), parts_.end(), index,
                                     [](std::int64_t wanted, const Part& one) { return wanted < one.end; });
  const std::int64_t before = part == parts_.begin() ? 0 : std::prev(part)->end;
  return {&*part, index - before};
}

std::string PredictionInputs::name(std::int64_t index) const {
  const auto [part, own] = find(index);
  return part->name(own);
}

void PredictionInputs::read(const SampleId& sample, void* input, std::int64_t* /*label*/, float* /*target*/) const {
  const auto [part, own] = find(sample.index);
  part->data->read(own, input, nullptr, nullptr);
}

}  // namespace convoy
