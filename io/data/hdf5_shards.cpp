// SPDX-License-Identifier: Apache-2.0
#include "io/data/hdf5_shards.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "io/data/hdf5_dataset.h"
#include "io/data/hdf5_jpegs.h"
#include "io/data/shards.h"
#include "io/files/packed_bytes.h"
#include "io/hdf5/validation.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

/// The files of a source in order; one that is no pattern is the only one. `Source` is Dataset or EncodedImages.
template <class Source>
class Concatenated : public Source {
 public:
  /// files: the names of shards in their folder; empty: `name` is the only file.
  Concatenated(std::string name, std::vector<std::string> files, std::vector<std::unique_ptr<Source>> parts)
      : name_(std::move(name)), files_(std::move(files)), parts_(std::move(parts)) {
    ends_.reserve(parts_.size());
    for (const auto& part : parts_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
  }

  [[nodiscard]] std::int64_t size() const override { return ends_.back(); }
  [[nodiscard]] std::int64_t classes() const override {
    std::int64_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->classes());
    return most;
  }
  [[nodiscard]] std::vector<std::string> class_names() const override { return first().class_names(); }
  void check_labels(std::int64_t classes) const override {
    for (const auto& part : parts_) part->check_labels(classes);
  }
  void pack(BytePacker& packer) const override {
    Hdf5Source(name_).pack(packer);
    packer.texts(files_);
    for (const auto& part : parts_) part->pack(packer);
  }

 protected:
  [[nodiscard]] const Source& first() const { return *parts_.front(); }
  /// The shard of sample `index`, and the sample's index there.
  [[nodiscard]] std::pair<const Source*, std::int64_t> find(std::int64_t index) const {
    if (index < 0 || index >= size()) fail("{}: sample {} of {}", name_, index, size());
    const auto part = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
    const std::int64_t before = part == 0 ? 0 : ends_[static_cast<std::size_t>(part - 1)];
    return {parts_[static_cast<std::size_t>(part)].get(), index - before};
  }

 private:
  std::string name_;
  std::vector<std::string> files_;
  std::vector<std::unique_ptr<Source>> parts_;
  std::vector<std::int64_t> ends_;  // of each part, in samples of all
};

class ConcatenatedDataset final : public Concatenated<Dataset> {
 public:
  using Concatenated::Concatenated;
  [[nodiscard]] Shape sample_shape() const override { return first().sample_shape(); }
  [[nodiscard]] DType input_dtype() const override { return first().input_dtype(); }
  [[nodiscard]] std::int64_t target_size() const override { return first().target_size(); }
  void read(const SampleId& sample, void* input, std::int64_t* label, float* target) const override {
    const auto [part, index] = find(sample.index);
    part->read({index, sample.epoch, sample.repetition}, input, label, target);
  }
};

class ConcatenatedImages final : public Concatenated<EncodedImages> {
 public:
  using Concatenated::Concatenated;
  [[nodiscard]] std::int64_t label(std::int64_t index) const override {
    const auto [part, own] = find(index);
    return part->label(own);
  }
  [[nodiscard]] std::string name(std::int64_t index) const override {
    const auto [part, own] = find(index);
    return part->name(own);
  }
  void read(std::int64_t index, std::vector<std::byte>& bytes) const override {
    const auto [part, own] = find(index);
    part->read(own, bytes);
  }
};

std::string contents(const Dataset& data) {
  std::string text = fmt::format("{} {}", dtype_name(data.input_dtype()), data.sample_shape().str());
  if (data.target_size() > 0) text += fmt::format(" with {} targets", data.target_size());
  return text;
}

std::string contents(const EncodedImages& /*images*/) { return "encoded images"; }

template <class Source>
void check_alike(const Source& one, const std::string& name, const Source& other, const std::string& other_name) {
  if (contents(one) != contents(other)) {
    fail_usage("{}: samples are {}, in {} {} (shards of one packing are alike)", other_name, contents(other), name,
               contents(one));
  }
  if (one.class_names() != other.class_names()) {
    fail_usage("{}: its class names differ from those of {} (shards of one packing are alike)", other_name, name);
  }
}

/// Opens each of `sources` as a `File`, which takes `options` as well.
template <class File, class Source, class... Options>
std::vector<std::unique_ptr<Source>> open_parts(const std::vector<std::string>& sources, Options... options) {
  std::vector<std::string> paths;
  paths.reserve(sources.size());
  for (const std::string& source : sources) paths.push_back(Hdf5Source(source).path);
  hdf5::validate_together(paths);
  std::vector<std::unique_ptr<Source>> parts;
  parts.reserve(sources.size());
  for (const std::string& source : sources) {
    try {
      parts.push_back(std::make_unique<File>(source, options...));
    } catch (const SystemError&) {
      throw;
    } catch (const Error&) {
      const bool jpegs = Hdf5Jpegs::are_in(source);
      if (parts.empty() || jpegs == Hdf5Jpegs::are_in(sources.front())) throw;
      fail_usage("{}: holds {}, {} does not (shards of one packing are alike)", source,
                 jpegs ? "encoded images" : "something else than encoded images", sources.front());
    }
    check_alike<Source>(*parts.front(), sources.front(), *parts.back(), source);
  }
  return parts;
}

template <class File, class Joined, class Source, class... Options>
std::unique_ptr<Source> open(const std::string& source, Options... options) {
  const std::vector<std::string> sources = shard_sources(source);
  auto parts = open_parts<File, Source>(sources, options...);
  std::vector<std::string> files;
  for (const std::string& one : sources) {
    if (one != source) files.push_back(fs::path(Hdf5Source(one).path).filename().string());
  }
  return std::make_unique<Joined>(source, std::move(files), std::move(parts));
}

template <class File, class Joined, class Source>
std::unique_ptr<Source> unpack(const std::string& source, ByteUnpacker& packed) {
  const Hdf5Source place(source, packed);
  std::vector<std::string> files = packed.texts();
  std::vector<std::unique_ptr<Source>> parts;
  if (files.empty()) parts.push_back(std::make_unique<File>(source, packed));
  for (const std::string& file : files) {
    Hdf5Source shard = place;
    shard.path = (fs::path(place.path).parent_path() / file).string();
    parts.push_back(std::make_unique<File>(shard.name_of(), packed));
  }
  return std::make_unique<Joined>(source, std::move(files), std::move(parts));
}

}  // namespace

bool has_hdf5_jpegs(const std::string& source) { return Hdf5Jpegs::are_in(shard_sources(source).front()); }

std::unique_ptr<Dataset> open_hdf5(const std::string& source, bool signals, bool verify, bool labelled) {
  return open<Hdf5Dataset, ConcatenatedDataset, Dataset>(source, signals, verify, labelled);
}

std::unique_ptr<EncodedImages> open_hdf5_jpegs(const std::string& source, bool verify, bool labelled) {
  return open<Hdf5Jpegs, ConcatenatedImages, EncodedImages>(source, verify, labelled);
}

std::unique_ptr<Dataset> unpack_hdf5(const std::string& source, ByteUnpacker& packed) {
  return unpack<Hdf5Dataset, ConcatenatedDataset, Dataset>(source, packed);
}

std::unique_ptr<EncodedImages> unpack_hdf5_jpegs(const std::string& source, ByteUnpacker& packed) {
  return unpack<Hdf5Jpegs, ConcatenatedImages, EncodedImages>(source, packed);
}

}  // namespace convoy
