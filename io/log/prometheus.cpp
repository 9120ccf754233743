// SPDX-License-Identifier: Apache-2.0
#include "io/log/prometheus.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

#include "io/files/atomic_file.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

constexpr std::chrono::seconds kInterval{1};

std::string escaped(std::string_view text, bool label) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\\' || (label && c == '"')) {
      result += std::string("\\") + c;
    } else {
      result += c;
    }
  }
  return result;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{:.15g}", value);
}

}  // namespace

PrometheusFile::PrometheusFile(std::string path, std::string_view run)
    : path_(std::move(path)), label_(escaped(run, true)) {}

void PrometheusFile::set(std::string_view name, double value, std::string_view help) {
  const auto found = std::find_if(metrics_.begin(), metrics_.end(), [&](const Metric& m) { return m.name == name; });
  if (found != metrics_.end()) {
    found->value = value;
  } else {
    metrics_.push_back({std::string(name), std::string(help), value});
  }
}

std::string PrometheusFile::text(double timestamp) const {
  std::string result;
  const auto add = [&](const std::string& name, const std::string& help, double value) {
    result += fmt::format("# HELP convoy_{0} {1}\n# TYPE convoy_{0} gauge\nconvoy_{0}{{run=\"{2}\"}} {3}\n", name,
                          escaped(help, false), label_, number_text(value));
  };
  for (const Metric& metric : metrics_) add(metric.name, metric.help, metric.value);
  add("timestamp_seconds", "When this file was written, in seconds since 1970.", timestamp);
  return result;
}

void PrometheusFile::write() {
  written_ = std::chrono::steady_clock::now();
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const std::string content = text(std::chrono::duration<double>(since_1970).count());
  const std::string temporary = path_ + ".tmp";  // which the collector does not read
  ::unlink(temporary.c_str());                   // of a run that was killed
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor < 0) fail_system(errno, "cannot write {}: {}", temporary, std::strerror(errno));
  try {
    write_all(descriptor, std::as_bytes(std::span(content)), temporary);
  } catch (...) {
    ::close(descriptor);
    ::unlink(temporary.c_str());
    throw;
  }
  // close() may report what a network file system or a quota did to the write.
  if (::close(descriptor) != 0 || std::rename(temporary.c_str(), path_.c_str()) != 0) {
    const int problem = errno;
    ::unlink(temporary.c_str());
    fail_system(problem, "cannot write {}: {}", path_, std::strerror(problem));
  }
}

bool PrometheusFile::due() const { return std::chrono::steady_clock::now() - written_ >= kInterval; }

}  // namespace convoy
