// SPDX-License-Identifier: Apache-2.0
//
// A file with a checksum trailer is read once, without HDF5. Where the trailer does not hold, the checksums of the
// samples say which of them are damaged, as far as HDF5 can still open the file.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "app/verify/file_check.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/data/hdf5_dataset.h"
#include "io/data/hdf5_jpegs.h"
#include "io/hdf5/checksum_trailer.h"
#include "layers/base/error.h"
#include "layers/base/format_bytes.h"

namespace convoy {

namespace {

struct SampleProblems {
  std::int64_t checked = 0, damaged = 0;
  std::string first;

  [[nodiscard]] std::string text() const {
    return damaged == 1 ? first : fmt::format("{}; {} blocks are damaged", first, damaged);
  }
};

// Reads every sample of the group.
void check_samples(const std::string& source, SampleProblems& found) {
  const auto each = [&](std::int64_t size, const auto& read) {
    for (std::int64_t i = 0; i < size; ++i, ++found.checked) {
      try {
        read(i);
      } catch (const Error& error) {
        if (found.damaged++ == 0) found.first = error.what();
      }
    }
  };
  if (Hdf5Jpegs::are_in(source)) {
    const Hdf5Jpegs images(source, true);
    std::vector<std::byte> bytes;
    each(images.size(), [&](std::int64_t i) { images.read(i, bytes); });
  } else {
    const Hdf5Dataset data(source, false, true);
    std::vector<std::byte> bytes(static_cast<std::size_t>(data.sample_shape().size()) * dtype_size(data.input_dtype()));
    each(data.size(), [&](std::int64_t i) { data.read({i, 0}, bytes.data(), nullptr, nullptr); });
  }
}

// Of every group that has checksums of its samples.
SampleProblems check_all_samples(const std::string& path) {
  SampleProblems found;
  const hdf5::File file(path);
  std::vector<std::string> groups{""};
  for (const std::string& name : file.groups("/")) groups.push_back("/" + name);
  for (const std::string& group : groups) {
    const std::string source = group.empty() ? path : fmt::format("{}:{}", path, group);
    if (SampleChecksums::are_in(file, Hdf5Source(source))) check_samples(source, found);
  }
  return found;
}

std::string size_text(const std::string& path) {
  std::error_code ignored;
  return format_bytes(std::filesystem::file_size(path, ignored));
}

// What a trailer that does not hold means, more closely if that can be told.
std::string damage(const std::string& path, const std::string& problem) {
  try {
    const SampleProblems samples = check_all_samples(path);
    if (samples.damaged > 0) return samples.text();
  } catch (const Error&) {  // the structure is damaged, too
  }
  return problem;
}

FileCheck check_checkpoint(const std::string& path) {
  if (const std::string problem = checkpoint_problem(path); !problem.empty())
    return {path, FileState::kDamaged, problem};
  const Checkpoint checkpoint = read_checkpoint(path);
  const std::string name = std::filesystem::path(path).filename().string();
  if (name.starts_with("step-") &&
      std::filesystem::path(checkpoint_path("", checkpoint.step)).filename() != name.substr(0, name.find(".h5") + 3)) {
    return {path, FileState::kDamaged, fmt::format("is the checkpoint of step {}, not of its name", checkpoint.step)};
  }
  if (const std::string tensor = first_nonfinite(checkpoint.model); !tensor.empty()) {
    return {path, FileState::kDamaged, fmt::format("{} has values that are not finite (nan or infinite)", tensor)};
  }
  return {path, FileState::kValid, fmt::format("checkpoint of step {}, {}", checkpoint.step, size_text(path))};
}

// Without a trailer: what checksums there are, and else that it can be read.
FileCheck check_elements(const std::string& path) {
  const SampleProblems samples = check_all_samples(path);
  if (samples.damaged > 0) {
    return {path, FileState::kDamaged, samples.text()};
  }
  bool verifiable = true;
  const std::vector<DatasetCheck> checks = check_datasets(path);
  for (const DatasetCheck& check : checks) {
    if (!check.problem.empty()) return {path, FileState::kDamaged, check.problem};
    verifiable = verifiable && check.verifiable;
  }
  if (verifiable && !checks.empty()) {
    return {path, FileState::kValid, fmt::format("HDF5 file, {}, every data set has its checksum", size_text(path))};
  }
  const std::string held = samples.checked > 0 ? fmt::format("{} samples have their checksums, ", samples.checked) : "";
  return {path, FileState::kReadable,
          fmt::format("HDF5 file, {}, {}no checksum over all of it", size_text(path), held)};
}

}  // namespace

FileCheck check_hdf5(const std::string& path) {
  try {
    const TrailerCheck trailer = check_trailer(path);
    if (trailer.trailer == Trailer::kBroken) return {path, FileState::kDamaged, damage(path, trailer.problem)};
    if (is_checkpoint(hdf5::File(path))) return check_checkpoint(path);
    if (trailer.trailer == Trailer::kNone) return check_elements(path);
    return {path, FileState::kValid, fmt::format("HDF5 file, {}, the checksum over all of it holds", size_text(path))};
  } catch (const std::exception& error) {
    return {path, FileState::kDamaged, error.what()};
  }
}

}  // namespace convoy
