// SPDX-License-Identifier: Apache-2.0
#include "app/launch/host_watch.h"

#include <exception>
#include <utility>

namespace convoy {

HostWatch::HostWatch(std::unique_ptr<HostSource> source) : source_(std::move(source)) {
  hosts_ = source_->read();
  thread_ = std::thread([this] { work(); });
}

HostWatch::~HostWatch() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

HostList HostWatch::hosts() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return hosts_;
}

std::vector<std::string> HostWatch::take_complaints() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return std::exchange(complaints_, {});
}

void HostWatch::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, source_->interval(), [this] { return stop_; })) {
    lock.unlock();
    HostList hosts;
    std::string complaint;
    try {
      hosts = source_->read();
    } catch (const std::exception& error) {
      complaint = error.what();
    }
    lock.lock();
    if (complaint.empty()) {
      hosts_ = std::move(hosts);
    } else if (complaint != last_complaint_) {
      complaints_.push_back(complaint);
    }
    last_complaint_ = complaint;
  }
}

}  // namespace convoy
