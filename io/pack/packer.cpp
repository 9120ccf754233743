// SPDX-License-Identifier: Apache-2.0
#include "io/pack/packer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "io/files/atomic_file.h"
#include "io/files/crc32c.h"
#include "io/files/own_file.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

constexpr std::int64_t kBlock = 64;                        // samples
constexpr std::int64_t kUnnoted = std::int64_t{64} << 20;  // bytes that a power cut may cost
constexpr std::int64_t kBrokenShare = 100;                 // one in so many may be broken
constexpr std::size_t kListed = 20;
constexpr std::chrono::milliseconds kLook{100};  // at the clock and for signals
constexpr std::chrono::seconds kNoteAfter{1};

}  // namespace

Packer::Packer(const PackSource& source, const PackPlan& plan, PackTask task, PackHooks hooks)
    : source_(source),
      plan_(plan),
      task_(std::move(task)),
      hooks_(std::move(hooks)),
      journal_(task_.output.journal(), task_.fingerprint) {
  for (std::size_t file = 0; file < plan.files.size(); ++file) {
    const PackRange& range = plan.files[file];
    first_of_.push_back(spans_.size());
    for (std::int64_t at = range.first; at < range.last; at += kBlock) {
      spans_.push_back({static_cast<int>(file), at, std::min(at + kBlock, range.last)});
    }
  }
  first_of_.push_back(spans_.size());
}

Packer::~Packer() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DataFileFrame Packer::frame() const {
  DataFileFrame frame;
  if (!source_.encoded()) frame.image = source_.image();
  frame.type = source_.type();
  if (task_.image.raw > 0) frame.image = {task_.image.raw, task_.image.raw, 3};
  frame.class_names = source_.class_names();
  frame.groups.emplace_back().path = plan_.split ? "/train" : "";
  if (plan_.split) frame.groups.emplace_back().path = "/validation";
  return frame;
}

void Packer::check_room() const {
  std::int64_t bytes = source_.bytes();
  if (task_.image.raw > 0) bytes = source_.size() * task_.image.raw * task_.image.raw * 3;
  if (task_.image.raw == 0 && task_.image.resize > 0) return;  // not known before
  for (const PackBlock& block : blocks_) bytes -= block.bytes();
  std::error_code error;
  const auto folder = std::filesystem::absolute(task_.output.journal()).parent_path();
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || bytes <= static_cast<std::int64_t>(space.available)) return;
  fail_system(ENOSPC, "{}: {} bytes are needed and {} are free there (make room or name another place)",
              task_.output.name(), bytes, space.available);
}

// A frame of one sample has its samples at the same place as the whole one.
void Packer::find_start() {
  DataFileFrame probe = frame();
  for (DataFileGroup& group : probe.groups) {
    group.labels = {0};
    group.checksums = {0};
    group.offsets = {0, 1};
  }
  start_ = FrameFile(task_.output.part(0), probe).start();
}

// Whether the finished file is of this packing.
bool Packer::is_placed(int file) const {
  std::error_code ignored;
  return journal_.placing() && !std::filesystem::exists(task_.output.part(file), ignored) &&
         std::filesystem::exists(task_.output.file(file), ignored);
}

void Packer::open_part(int file, std::int64_t bytes) {
  if (descriptor_ >= 0) ::close(descriptor_);
  const std::string part = task_.output.part(file);
  descriptor_ = open_own_file(part, O_RDWR | O_CREAT, 0644);
  if (descriptor_ < 0) {
    fail_system(errno, "cannot create {}: {} (name an output in a folder that may be written)", part,
                std::strerror(errno));
  }
  file_ = file;
  end_ = bytes;
}

// What an earlier packing of the same has done, or nothing.
void Packer::take_journal() {
  blocks_ = journal_.blocks();
  bool whole = !blocks_.empty() && blocks_.size() <= spans_.size();
  std::vector<std::int64_t> bytes(plan_.files.size());
  for (std::size_t i = 0; whole && i < blocks_.size(); ++i) {
    whole = static_cast<std::int64_t>(blocks_[i].sizes.size()) == spans_[i].last - spans_[i].first;
    bytes[static_cast<std::size_t>(spans_[i].file)] += blocks_[i].bytes();
    broken_ += static_cast<std::int64_t>(blocks_[i].broken.size());
  }
  const int files = whole ? spans_[blocks_.size() - 1].file + 1 : 0;
  for (int file = 0; whole && file < files; ++file) {
    std::error_code error;
    const auto size = std::filesystem::file_size(task_.output.part(file), error);
    const std::int64_t needed = start_ + bytes[static_cast<std::size_t>(file)];
    whole = is_placed(file) || (!error && static_cast<std::int64_t>(size) >= needed);
  }
  if (!whole) {
    if (task_.output.remove_parts() && !journal_.differs()) {
      hooks_.message(fmt::format("{} holds nothing to resume from: starting over", task_.output.journal()));
    }
    journal_.restart();
    blocks_.clear();
    bytes.assign(bytes.size(), 0);
    broken_ = 0;
  }
  check_broken();
  next_ = static_cast<std::int64_t>(blocks_.size());
  if (blocks_.size() < spans_.size()) {
    const int file = spans_[blocks_.size()].file;
    open_part(file, bytes[static_cast<std::size_t>(file)]);
  }
  if (next_ == 0) return;
  hooks_.message(fmt::format("resuming after {} of {} samples, which {} holds", samples_done(), source_.size(),
                             task_.output.sharded() ? task_.output.name() + ".part" : task_.output.part(0)));
}

std::int64_t Packer::samples_done() const { return blocks_.empty() ? 0 : spans_[blocks_.size() - 1].last; }

PackBlock Packer::make_block(std::int64_t number, ImagePacker& packer, std::vector<std::byte>& bytes) const {
  PackBlock block;
  bytes.clear();
  const Span& span = spans_[static_cast<std::size_t>(number)];
  for (std::int64_t at = span.first; at < span.last; ++at) {
    const std::int64_t index = plan_.order[static_cast<std::size_t>(at)];
    const std::size_t before = bytes.size();
    try {
      packer.append(index, bytes);
      const std::string_view added(reinterpret_cast<const char*>(bytes.data()) + before, bytes.size() - before);
      if (task_.image.statistics && at < plan_.files[static_cast<std::size_t>(span.file)].validation) {
        packer.measure(index, std::as_bytes(std::span(added)), block.statistics);
      }
      block.sizes.push_back(static_cast<std::int64_t>(added.size()));
      block.checksums.push_back(crc32c(added));
    } catch (const Error& error) {
      if (!source_.encoded()) throw;  // the file itself cannot be read
      block.checksums.push_back(0);
      bytes.resize(before);
      block.sizes.push_back(-1);
      block.broken.push_back(fmt::format("{}: {}", source_.name(index), error.what()));
    }
  }
  return block;
}

// Under the lock.
void Packer::flush() {
  if (unnoted_.empty()) return;
  if (::fdatasync(descriptor_) != 0) {
    fail_io("cannot write {}: {} (make room or name another place)", task_.output.part(file_), std::strerror(errno));
  }
  journal_.append(unnoted_);
  unnoted_.clear();
  unnoted_bytes_ = 0;
}

// Under the lock.
void Packer::check_broken() const {
  if (broken_ * kBrokenShare <= source_.size()) return;
  std::vector<std::string> listed;
  for (const PackBlock& block : blocks_) {
    for (const std::string& text : block.broken) {
      if (listed.size() < kListed) listed.push_back(text);
    }
  }
  fail("{}: {} broken files among {} are more than one in {} (repair or remove them): {}{}", source_.path(), broken_,
       source_.size(), kBrokenShare, fmt::join(listed, "; "),
       static_cast<std::int64_t>(listed.size()) < broken_ ? "; ..." : "");
}

// Waits until all blocks before this one are written. The lock is held while writing: it goes in one stream anyway.
void Packer::commit(std::int64_t number, PackBlock block, const std::vector<std::byte>& bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || static_cast<std::int64_t>(blocks_.size()) == number; });
  if (failure_) return;
  if (const int file = spans_[blocks_.size()].file; file != file_) {
    flush();
    open_part(file, 0);
  }
  if (const int reason = pwrite_all(descriptor_, bytes, start_ + end_); reason != 0) {
    fail_io("cannot write {}: {} (free space or choose another place; the same command then resumes)",
            task_.output.part(file_), std::strerror(reason));
  }
  end_ += static_cast<std::int64_t>(bytes.size());
  broken_ += static_cast<std::int64_t>(block.broken.size());
  for (const std::string& text : block.broken) news_.push_back("left out: " + text);
  unnoted_.push_back(block);
  unnoted_bytes_ += static_cast<std::int64_t>(bytes.size());
  blocks_.push_back(std::move(block));
  check_broken();
  if (unnoted_bytes_ >= kUnnoted) flush();
  changed_.notify_all();
}

void Packer::work() {
  try {
    ImagePacker packer(source_, task_.image);
    std::vector<std::byte> bytes;
    while (true) {
      std::int64_t number = 0;
      {
        const std::lock_guard lock(mutex_);
        if (failure_ || stopping_ || next_ == static_cast<std::int64_t>(spans_.size())) break;
        number = next_++;
      }
      PackBlock block = make_block(number, packer, bytes);
      if (packer.dropped_alpha() >= 0) {
        const std::lock_guard lock(mutex_);
        if (!std::exchange(alpha_told_, true)) {
          news_.push_back(fmt::format("note: {}: has transparency, which is dropped, here and in all other images",
                                      source_.name(packer.dropped_alpha())));
        }
      }
      commit(number, std::move(block), bytes);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  --working_;
  changed_.notify_all();
}

// Until all threads have ended: reports progress to the caller, and notes what is done.
void Packer::watch() {
  auto noted = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (working_ > 0) {
    changed_.wait_for(lock, kLook, [&] { return working_ == 0; });
    const auto now = std::chrono::steady_clock::now();
    if (!failure_ && now - noted >= kNoteAfter) {
      noted = now;
      try {
        flush();
      } catch (const Error&) {
        failure_ = std::current_exception();
        changed_.notify_all();
      }
    }
    const std::vector<std::string> news = std::exchange(news_, {});
    const std::int64_t done = samples_done();
    lock.unlock();
    for (const std::string& text : news) hooks_.message(text);
    hooks_.progress(done);
    const bool stop = hooks_.stop();
    lock.lock();
    stopping_ = stopping_ || stop;
  }
}

PixelStatistics Packer::statistics() const {
  PixelStatistics all;
  for (const PackBlock& block : blocks_) all.add(block.statistics);
  return all;
}

DataFileFrame Packer::whole_frame(int file) const {
  DataFileFrame whole = frame();
  if (task_.image.statistics) {
    const PixelStatistics all = statistics();
    whole.mean = all.mean;
    whole.deviation = all.deviation();
  }
  for (DataFileGroup& group : whole.groups) group.offsets = {0};
  const auto index = static_cast<std::size_t>(file);
  for (std::size_t i = first_of_[index]; i < first_of_[index + 1]; ++i) {
    std::int64_t at = spans_[i].first;
    for (std::size_t k = 0; k < blocks_[i].sizes.size(); ++k) {
      const std::int64_t position = at++, size = blocks_[i].sizes[k];
      if (size < 0) continue;
      DataFileGroup& group = position < plan_.files[index].validation ? whole.groups.front() : whole.groups.back();
      if (whole.image.empty()) group.offsets.push_back(group.offsets.back() + size);
      group.labels.push_back(source_.label(plan_.order[static_cast<std::size_t>(position)]));
      group.checksums.push_back(blocks_[i].checksums[k]);
    }
  }
  for (const DataFileGroup& group : whole.groups) {
    if (!group.labels.empty()) continue;
    fail("{}: all samples of {}{} are broken (repair or remove them{})", source_.path(), task_.output.file(file),
         group.path, task_.output.sharded() ? ", or make fewer shards" : "");
  }
  return whole;
}

// Puts what is no sample around the samples of the file.
void Packer::frame_part(int file, const DataFileFrame& whole) {
  const std::string part = task_.output.part(file);
  const FrameFile frame(part, whole);
  const std::int64_t bulk = whole.bulk_bytes();
  open_part(file, bulk);
  if (frame.start() != start_ || ::lseek(descriptor_, 0, SEEK_END) < start_ + bulk) {
    fail("{}: HDF5 places {} bytes of samples at {}, but they are at {}", part, bulk, frame.start(), start_);
  }
  frame.complete(descriptor_, part);
}

// Finished shards get their names together, and only when no others have them.
void Packer::finish(PackResult& result) {
  const int files = task_.output.files();
  std::vector<bool> placed(static_cast<std::size_t>(files));
  for (int file = 0; file < files; ++file) {
    const DataFileFrame whole = whole_frame(file);
    result.training += static_cast<std::int64_t>(whole.groups.front().labels.size());
    result.mean = whole.mean;
    result.deviation = whole.deviation;
    if (plan_.split) result.validation += static_cast<std::int64_t>(whole.groups.back().labels.size());
    placed[static_cast<std::size_t>(file)] = is_placed(file);
    if (!placed[static_cast<std::size_t>(file)]) frame_part(file, whole);
  }
  if (task_.output.sharded() && !journal_.placing()) {
    task_.output.remove_finished();
    journal_.note_placing();
  }
  for (int file = 0; file < files; ++file) {
    const std::string path = task_.output.file(file);
    if (!placed[static_cast<std::size_t>(file)]) finish_file(task_.output.part(file), path);
    result.bytes += static_cast<std::int64_t>(std::filesystem::file_size(path));
  }
  journal_.remove();
  result.finished = true;
}

void Packer::remove_parts() {
  static_cast<void>(task_.output.remove_parts());
  journal_.remove();
}

PackResult Packer::run() {
  if (journal_.differs()) {
    hooks_.message(fmt::format("{} is of other files or options: starting over", task_.output.journal()));
  }
  try {
    find_start();
    take_journal();
    check_room();
  } catch (const Error&) {
    if (blocks_.empty()) remove_parts();
    throw;
  }
  const std::int64_t before = samples_done();
  hooks_.progress(before);
  working_ = task_.threads;
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(task_.threads));
  for (int i = 0; i < task_.threads; ++i) threads.emplace_back([this] { work(); });
  watch();
  threads.clear();
  if (failure_) {
    try {
      flush();
    } catch (const Error&) {  // the first failure is the one to tell
    }
    std::rethrow_exception(failure_);
  }
  flush();
  PackResult result;
  result.broken = broken_;
  result.done = samples_done();
  result.packed_here = result.done - before;
  if (blocks_.size() == spans_.size()) finish(result);
  return result;
}

}  // namespace convoy
