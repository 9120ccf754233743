// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/host_exchange.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <istream>
#include <span>
#include <sstream>
#include <utility>

namespace convoy {

void send_text(Communicator& communicator, const std::string& text, int peer, const std::string& what) {
  communicator.send_bytes(std::as_bytes(std::span(text)), peer, what);
}

std::string receive_text(Communicator& communicator, int peer, const std::string& what) {
  const std::vector<std::byte> bytes = communicator.receive_bytes(peer, what);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void send_tensors(Communicator& communicator, const std::vector<HostTensor>& tensors, int peer,
                  const std::string& what) {
  send_text(communicator, std::to_string(tensors.size()), peer, what);
  for (const HostTensor& tensor : tensors) {
    std::string header = fmt::format("{} {}", static_cast<int>(tensor.dtype), tensor.shape.rank());
    for (int i = 0; i < tensor.shape.rank(); ++i) header += fmt::format(" {}", tensor.shape[i]);
    send_text(communicator, header + " " + tensor.name, peer, what);
    communicator.send_bytes(tensor.bytes, peer, what);
  }
}

std::vector<HostTensor> receive_tensors(Communicator& communicator, int peer, const std::string& what) {
  const std::size_t count = std::stoull(receive_text(communicator, peer, what));
  std::vector<HostTensor> tensors(count);
  for (HostTensor& tensor : tensors) {
    std::istringstream header(receive_text(communicator, peer, what));
    int dtype = 0, rank = 0;
    header >> dtype >> rank;
    std::vector<std::int64_t> extents(static_cast<std::size_t>(rank));
    for (std::int64_t& extent : extents) header >> extent;
    header >> std::ws;
    std::getline(header, tensor.name);
    tensor.dtype = static_cast<DType>(dtype);
    tensor.shape = Shape(extents.data(), rank);
    tensor.bytes = communicator.receive_bytes(peer, what);
  }
  return tensors;
}

std::string reduce_texts(Communicator& communicator, std::string text, const MergeTexts& merge,
                         const std::string& what) {
  const int rank = communicator.rank(), size = communicator.size();
  for (int distance = 1; distance < size; distance *= 2) {
    if (rank % (2 * distance) != 0) {
      send_text(communicator, text, rank - distance, what);
      return "";
    }
    if (rank + distance < size) text = merge(std::move(text), receive_text(communicator, rank + distance, what));
  }
  return text;
}

std::string join_texts(Communicator& communicator, std::string text, const std::string& what) {
  return reduce_texts(
      communicator, std::move(text),
      [](std::string lower, const std::string& higher) { return std::move(lower) + higher; }, what);
}

// The least and the largest of each are the same; the largest is that of the negatives.
bool all_equal(Communicator& communicator, std::span<const double> numbers, const std::string& what) {
  std::vector<double> bounds;
  for (const double number : numbers) bounds.insert(bounds.end(), {number, number == kNoNumber ? kNoNumber : -number});
  communicator.all_reduce(bounds, ReduceOp::kMin, what);
  for (std::size_t i = 0; i < bounds.size(); i += 2) {
    if (bounds[i] != kNoNumber && bounds[i] != -bounds[i + 1]) return false;
  }
  return true;
}

}  // namespace convoy
