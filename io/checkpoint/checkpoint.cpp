// SPDX-License-Identifier: Apache-2.0
//
// hdf5.h builds the file, atomic_file.h writes it, checksum_trailer.h covers all of it. Checkpoints of earlier versions
// also carry Fletcher32, which the HDF5 library checks as it reads. `complete` is the last attribute written.
#include "io/checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <span>
#include <string_view>

#include "io/files/atomic_file.h"
#include "io/files/copy_range.h"
#include "io/files/unnamed_file.h"
#include "io/hdf5/checksum_trailer.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

constexpr std::string_view kFormat = "convoy-checkpoint";
constexpr const char* kAverage = "/ema";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::size_t kMetadataBytes = 4096;  // of a data set, roughly

std::string to_file_path(const std::string& group, std::string name) {
  if (name.empty() || name.front() == '.' || name.back() == '.' || name.find("..") != std::string::npos ||
      name.find('/') != std::string::npos) {
    fail("a tensor named \"{}\" cannot go into a checkpoint: names are parts joined by single dots", name);
  }
  std::replace(name.begin(), name.end(), '.', '/');
  return group + "/" + name;
}

std::string to_name(const std::string& group, const std::string& path) {
  std::string name = path.substr(group.size() + 1);
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

std::size_t payload(const Checkpoint& checkpoint) {
  std::size_t bytes = checkpoint.config.size();
  for (const auto& tensor : checkpoint.model) bytes += tensor.bytes.size() + kMetadataBytes;
  for (const auto& [slot, tensors] : checkpoint.optimizer) {
    for (const auto& tensor : tensors) bytes += tensor.bytes.size() + kMetadataBytes;
  }
  for (const auto& tensor : checkpoint.average) bytes += tensor.bytes.size() + kMetadataBytes;
  return bytes;
}

// Each data set may be as large as the file allows; all of them together, too, and no more.
void refuse_implausible_sum(const hdf5::File& file, const std::string& group,
                            const std::vector<hdf5::DatasetInfo>& infos) {
  std::int64_t bytes = 0;
  for (const auto& info : infos) {
    const std::int64_t element = info.dtype ? static_cast<std::int64_t>(dtype_size(*info.dtype)) : 1;
    std::int64_t more = 0;
    if (__builtin_mul_overflow(info.size(), element, &more) || __builtin_add_overflow(bytes, more, &bytes)) {
      fail("{}:{}: its data sets are too large", file.path(), group);
    }
  }
  if (bytes > file.largest_plausible()) {
    fail("{}:{}: {} bytes in {} data sets cannot be in this file (damaged)", file.path(), group, bytes, infos.size());
  }
}

std::vector<HostTensor> read_group(const hdf5::File& file, const std::string& group, const UnreadTensors& unread) {
  std::vector<HostTensor> tensors;
  const std::vector<hdf5::DatasetInfo> infos = file.datasets(group);
  refuse_implausible_sum(file, group, infos);
  tensors.reserve(infos.size());
  for (const auto& info : infos) {
    const std::string name = to_name(group, info.path);
    if (!info.dtype || std::find(unread.begin(), unread.end(), name) == unread.end()) {
      tensors.push_back(file.read(info.path, name));
      continue;
    }
    HostTensor& tensor = tensors.emplace_back();
    tensor.name = name;
    tensor.shape = Shape(info.dims.data(), static_cast<int>(info.dims.size()));
    tensor.dtype = *info.dtype;
  }
  return tensors;
}

template <class T>
T required(const std::optional<T>& value, const hdf5::File& file, const char* name) {
  if (!value) fail("{}: attribute {} is missing", file.path(), name);
  return *value;
}

hdf5::Trust trust_of(const TrailerCheck& check) {
  return check.trailer == Trailer::kHolds ? hdf5::Trust::kTrusted : hdf5::Trust::kUntrusted;
}

// A file with a wrong trailer never reaches HDF5. One without a trailer was edited, or comes from another program.
hdf5::File open_checked(const std::string& path, const TrailerCheck& check) {
  if (check.trailer == Trailer::kBroken) fail("{}: {}", path, check.problem);
  return hdf5::File(path, trust_of(check));
}

// The attributes; throws unless the file is a complete checkpoint of a version that is known.
Checkpoint read_header(const hdf5::File& file) {
  if (file.string_attribute("/", "format").value_or("") != kFormat) {
    fail("{}: not a checkpoint (its attribute format is not \"{}\")", file.path(), kFormat);
  }
  const auto version = required(file.int_attribute("/", "format_version"), file, "format_version");
  if (version < 1 || version > kFormatVersion) {
    fail("{}: format_version {} is not known to this program (it reads up to {})", file.path(), version,
         kFormatVersion);
  }
  if (file.int_attribute("/", "complete").value_or(0) != 1) {
    fail("{}: incomplete (attribute complete is missing): its writer was interrupted", file.path());
  }
  const auto integer = [&](const char* name) { return required(file.int_attribute("/", name), file, name); };
  const auto text = [&](const char* name) { return required(file.string_attribute("/", name), file, name); };
  Checkpoint c;
  c.step = integer("step");
  c.epoch = integer("epoch");
  c.samples_seen = integer("samples_seen");
  c.lr_step = integer("lr_step");
  c.ranks = static_cast<int>(integer("ranks"));
  c.seed = required(file.uint_attribute("/", "seed"), file, "seed");
  c.loss_scale = required(file.double_attribute("/", "loss_scale"), file, "loss_scale");
  c.config = text("config");
  c.program_version = text("program_version");
  c.mode = text("mode");
  c.created = text("created");
  c.data = file.string_attribute("/", "data").value_or("");
  c.run = file.string_attribute("/", "run").value_or("");
  c.evaluation_due = file.int_attribute("/", "evaluation_due").value_or(0) == 1;
  for (const char* group : {"/model", "/optimizer"}) {
    if (!file.has(group) || file.is_dataset(group)) fail("{}: group {} is missing", file.path(), group);
  }
  return c;
}

bool has_average(const hdf5::File& file) { return file.has(kAverage) && !file.is_dataset(kAverage); }

}  // namespace

std::string first_nonfinite(const Checkpoint& checkpoint) {
  if (const auto* entry = checkpoint.spool ? checkpoint.spool->nonfinite() : nullptr) {
    if (entry->group == "/model") return entry->name;
    if (entry->group == kAverage) return entry->name + " (average)";
    return fmt::format("{} (optimizer {})", entry->name, entry->group.substr(entry->group.rfind('/') + 1));
  }
  std::string name = first_nonfinite(checkpoint.model);
  for (const auto& [slot, tensors] : checkpoint.optimizer) {
    if (!name.empty()) break;
    name = first_nonfinite(tensors);
    if (!name.empty()) name += fmt::format(" (optimizer {})", slot);
  }
  if (name.empty()) {
    name = first_nonfinite(checkpoint.average);
    if (!name.empty()) name += " (average)";
  }
  return name;
}

namespace {

// All but what is in a spool.
void fill(hdf5::FileImage& image, const Checkpoint& checkpoint) {
  image.create_group("/model");
  image.create_group("/optimizer");
  for (const auto& tensor : checkpoint.model) image.write(to_file_path("/model", tensor.name), tensor);
  for (const auto& [slot, tensors] : checkpoint.optimizer) {
    if (slot.find('.') != std::string::npos) fail("an optimizer slot named \"{}\": dots are not allowed", slot);
    const std::string group = to_file_path("/optimizer", slot);
    image.create_group(group);
    for (const auto& tensor : tensors) image.write(to_file_path(group, tensor.name), tensor);
  }
  if (!checkpoint.average.empty()) image.create_group(kAverage);
  for (const auto& tensor : checkpoint.average) image.write(to_file_path(kAverage, tensor.name), tensor);
  image.write_attribute("/", "format", std::string(kFormat));
  image.write_attribute("/", "format_version", kFormatVersion);
  image.write_attribute("/", "step", checkpoint.step);
  image.write_attribute("/", "epoch", checkpoint.epoch);
  image.write_attribute("/", "samples_seen", checkpoint.samples_seen);
  image.write_attribute("/", "seed", checkpoint.seed);
  image.write_attribute("/", "lr_step", checkpoint.lr_step);
  image.write_attribute("/", "loss_scale", checkpoint.loss_scale);
  image.write_attribute("/", "evaluation_due", std::int64_t{checkpoint.evaluation_due ? 1 : 0});
  image.write_attribute("/", "config", checkpoint.config);
  image.write_attribute("/", "data", checkpoint.data);
  image.write_attribute("/", "program_version", checkpoint.program_version);
  image.write_attribute("/", "ranks", std::int64_t{checkpoint.ranks});
  image.write_attribute("/", "mode", checkpoint.mode);
  image.write_attribute("/", "created", checkpoint.created.empty() ? utc_time() : checkpoint.created);
  image.write_attribute("/", "run", checkpoint.run);
  image.write_attribute("/", "complete", std::int64_t{1});
}

// HDF5 writes a file without a name in which the tensors of the spool have their places; it is copied around them.
void write_around_spool(const std::string& path, const Checkpoint& checkpoint) {
  const TensorSpool& spool = *checkpoint.spool;
  if (!spool.problem().empty()) fail_io("{}", spool.problem());
  AtomicFile file(path);
  UnnamedFile frame(path, kTemporarySuffix);
  std::map<std::int64_t, const TensorSpool::Entry*> places;
  {
    hdf5::FileImage image(path, frame.name());
    frame.drop_name();  // HDF5 has it open
    fill(image, checkpoint);
    for (const TensorSpool::Entry& entry : spool.entries()) {
      places[image.reserve(to_file_path(entry.group, entry.name), entry.shape, DType::kF32)] = &entry;
    }
    image.close();
  }
  std::int64_t at = 0;
  std::uint32_t checksum = 0;
  for (const auto& [place, entry] : places) {
    const std::int64_t bytes = entry->shape.size() * static_cast<std::int64_t>(sizeof(float));
    checksum = copy_range(frame.descriptor(), at, place, file.descriptor(), at, path, checksum);
    checksum =
        copy_range(spool.descriptor(), entry->offset, entry->offset + bytes, file.descriptor(), place, path, checksum);
    at = place + bytes;
  }
  const std::int64_t end = ::lseek(frame.descriptor(), 0, SEEK_END);
  checksum = copy_range(frame.descriptor(), at, end, file.descriptor(), at, path, checksum);
  append_trailer(file.descriptor(), checksum, end, path);
  file.finish();
}

}  // namespace

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint, hdf5::FileImageBuffer* memory) {
  if (checkpoint.spool) return write_around_spool(path, checkpoint);
  hdf5::FileImage image(path, payload(checkpoint), memory);
  fill(image, checkpoint);
  const auto bytes = image.bytes();
  const std::string trailer = trailer_for(bytes);
  write_file_atomically(path, bytes, std::as_bytes(std::span(trailer)));
}

TensorRows::TensorRows(const std::string& path) : file_(path, hdf5::Trust::kTrusted) {}

std::vector<float> TensorRows::read(const std::string& group, const std::string& name, std::int64_t first,
                                    std::int64_t count) const {
  const std::string dataset = to_file_path(group, name);
  const hdf5::DatasetInfo info = file_.info(dataset);
  if (count == 0) return {};
  std::vector<float> rows(static_cast<std::size_t>(info.size() / info.dims[0] * count));
  hdf5::RowReader(file_, dataset).read(first, count, DType::kF32, rows.data());
  return rows;
}

Checkpoint read_checkpoint(const std::string& path, const UnreadTensors& unread) {
  const TrailerCheck trailer = check_trailer(path);  // an error here is one of the storage, not of the file
  return hdf5::input_errors([&] {
    const hdf5::File file = open_checked(path, trailer);
    Checkpoint checkpoint = read_header(file);
    checkpoint.model = read_group(file, "/model", unread);
    for (const auto& slot : file.groups("/optimizer")) {
      checkpoint.optimizer.push_back({slot, read_group(file, "/optimizer/" + slot, unread)});
    }
    if (has_average(file)) checkpoint.average = read_group(file, kAverage, unread);
    return checkpoint;
  });
}

std::vector<HostTensor> read_model_weights(const std::string& path, const UnreadTensors& unread) {
  return hdf5::input_errors([&] {
    const hdf5::File file = open_checked(path, check_trailer(path));
    if (!file.has("/model") || file.is_dataset("/model")) {
      fail("{}: no group /model, which holds the weights under torchvision's names with '.' as '/'", path);
    }
    auto tensors = read_group(file, "/model", unread);
    if (tensors.empty()) fail("{}: its group /model holds no data sets", path);
    return tensors;
  });
}

std::vector<HostTensor> read_average(const std::string& path, const UnreadTensors& unread) {
  return hdf5::input_errors([&] {
    const hdf5::File file = open_checked(path, check_trailer(path));
    return has_average(file) ? read_group(file, kAverage, unread) : std::vector<HostTensor>();
  });
}

bool is_checkpoint(const hdf5::File& file) {
  return file.string_attribute("/", "format").value_or("").starts_with(kFormat);
}

CheckpointCheck examine_checkpoint(const std::string& path) {
  TrailerCheck trailer;
  try {
    trailer = check_trailer(path);
  } catch (const Error& error) {
    return {CheckpointState::kUnreadable, error.what(), ""};
  }
  if (trailer.trailer == Trailer::kBroken) {
    return {CheckpointState::kInvalid, fmt::format("{}: {}", path, trailer.problem), ""};
  }
  bool parsing = false;  // the content, and not what the storage gives of it
  try {
    const hdf5::File file(path, trust_of(trailer));
    parsing = true;
    CheckpointCheck check{CheckpointState::kValid, "", read_header(file).run};
    parsing = false;
    for (const auto& info : file.datasets()) file.verify(info);
    return check;
  } catch (const Error& error) {
    // A file whose trailer holds is undamaged: what fails afterwards, its content aside, is the reading.
    const bool refused = !is_system_fault(error) && (parsing || error.code() == ExitCode::kUsage);
    const bool invalid = refused || (trailer.trailer == Trailer::kNone && read_problem(path).empty());
    return {invalid ? CheckpointState::kInvalid : CheckpointState::kUnreadable, error.what(), ""};
  }
}

std::string checkpoint_problem(const std::string& path) { return examine_checkpoint(path).problem; }

std::vector<DatasetCheck> check_datasets(const std::string& path) {
  const TrailerCheck trailer = check_trailer(path);
  const bool has_valid_trailer = trailer.trailer == Trailer::kHolds;
  const hdf5::File file = hdf5::input_errors([&] { return hdf5::File(path, trust_of(trailer)); });
  std::vector<DatasetCheck> checks;
  for (const auto& info : file.datasets()) {
    DatasetCheck check{info, info.checksummed || has_valid_trailer, ""};
    try {
      file.verify(info);
    } catch (const Error& error) {
      check.problem = error.what();
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace convoy
