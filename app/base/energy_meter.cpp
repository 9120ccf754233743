// SPDX-License-Identifier: Apache-2.0
#include "app/base/energy_meter.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "layers/base/error.h"
#include "layers/base/file_text.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kInterval{100};
constexpr const char* kPowercap = "/sys/class/powercap";

std::optional<std::uint64_t> read_counter(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  std::uint64_t value = 0;
  if (length <= 0 || std::from_chars(text.data(), text.data() + length, value).ec != std::errc()) return std::nullopt;
  return value;
}

std::uint64_t number_of_file(const std::string& path) {
  const auto text = file_text(path);
  std::uint64_t value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

}  // namespace

/// The counter of one GPU (nvmlDeviceGetTotalEnergyConsumption, millijoules since the driver was loaded; Volta and
/// newer). The functions' types are those of nvml.h, whose ABI is stable.
class EnergyMeter::Gpu {
 public:
  explicit Gpu(const std::string& uuid) : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) fail("libnvidia-ml.so.1 cannot be loaded");
    try {
      const auto start = symbol<int()>("nvmlInit_v2");
      const auto find = symbol<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
      energy_ = symbol<int(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
      check(start(), "nvmlInit_v2");
      // "GPU-8-4-4-4-12".
      std::string name = "GPU-" + uuid;
      for (const std::size_t at : {12, 17, 22, 27}) name.insert(std::min(at, name.size()), "-");
      check(find(name.c_str(), &device_), "nvmlDeviceGetHandleByUUID");
      unsigned long long millijoules = 0;
      check(energy_(device_, &millijoules), "nvmlDeviceGetTotalEnergyConsumption");
      last_ = millijoules;
    } catch (...) {
      ::dlclose(library_);
      throw;
    }
  }
  ~Gpu() { ::dlclose(library_); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  double take() {
    unsigned long long now = 0;
    if (energy_(device_, &now) != 0 || now < last_) return 0;
    return 1e-3 * static_cast<double>(now - std::exchange(last_, now));
  }

 private:
  template <class Function>
  Function* symbol(const char* name) const {
    void* const found = ::dlsym(library_, name);
    if (found == nullptr) fail("libnvidia-ml.so.1 has no {}", name);
    return reinterpret_cast<Function*>(found);
  }
  static void check(int result, const char* function) {
    if (result != 0) fail("{} returned {}", function, result);
  }

  void* library_;
  void* device_ = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  unsigned long long last_ = 0;
};

EnergyMeter::EnergyMeter(bool packages, const std::string& gpu_uuid, std::string root) {
  if (root.empty()) {
    const char* named = std::getenv("CONVOY_POWERCAP");
    root = named != nullptr && *named != '\0' ? named : kPowercap;
  }
  if (packages) open_packages(root);
  if (!gpu_uuid.empty()) {
    try {
      gpu_ = std::make_unique<Gpu>(gpu_uuid);
    } catch (const Error& error) {
      note(error.what());
    }
  }
  taken_ = std::chrono::steady_clock::now();
}

EnergyMeter::~EnergyMeter() {
  for (const Package& package : packages_) ::close(package.descriptor);
}

void EnergyMeter::note(const std::string& problem) { problem_ += (problem_.empty() ? "" : "; ") + problem; }

// Domains are intel-rapl:0, intel-rapl:1, ... (also of AMD's processors), each with a file `name`; those within a
// package are intel-rapl:0:0, ... and are part of it.
void EnergyMeter::open_packages(const std::string& root) {
  std::error_code error;
  std::vector<fs::path> domains;
  for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    domains.push_back(at->path());
  }
  std::sort(domains.begin(), domains.end());
  for (const fs::path& domain : domains) {
    const auto name = file_text((domain / "name").string());
    if (!name || !name->starts_with("package")) continue;
    const std::string path = (domain / "energy_uj").string();
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const auto value = descriptor >= 0 ? read_counter(descriptor) : std::nullopt;
    if (!value) {
      note(fmt::format("{}: {}", path, std::strerror(errno)));
      if (descriptor >= 0) ::close(descriptor);
      continue;
    }
    packages_.push_back({descriptor, *value, number_of_file((domain / "max_energy_range_uj").string())});
  }
  if (packages_.empty() && problem_.empty()) note(fmt::format("{} has no package domain", root));
}

double EnergyMeter::take() {
  taken_ = std::chrono::steady_clock::now();
  double joules = gpu_ ? gpu_->take() : 0;
  for (Package& package : packages_) {
    const auto now = read_counter(package.descriptor);
    if (!now) continue;
    const std::uint64_t last = std::exchange(package.last, *now), wrapped = *now < last ? package.range : 0;
    if (*now + wrapped < last) continue;  // was set back, or has wrapped around an unknown range
    joules += 1e-6 * static_cast<double>(*now + wrapped - last);
  }
  return joules;
}

double EnergyMeter::take_sometimes() {
  if (!readable() || std::chrono::steady_clock::now() - taken_ < kInterval) return 0;
  return take();
}

}  // namespace convoy
