// SPDX-License-Identifier: Apache-2.0
//
// Samples with something wrong (files that cannot be decoded, values that are not finite): each is noted once, reported
// once, and when there are too many the run ends.
// Apart from these, one remark about the images as they are.
// Invariant: may be used by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace convoy {

class BrokenFiles {
 public:
  /// source: of the data, for messages. share: of `samples` that may be broken.
  /// remark: what is wrong with each and what is done about it, for the report.
  BrokenFiles(std::string source, std::int64_t samples, double share,
              std::string remark = "broken image, another of its class takes its place");

  /// Notes sample `index`, called `name`; a second call for it changes nothing. Throws the Error of too_many() when it
  /// is one too many.
  void note(std::int64_t index, const std::string& name, const std::string& problem);

  /// Notes something about `name` that is worth telling, but nothing broken: the first such call counts.
  void remark_once(const std::string& name, const std::string& text);

  /// The message about a broken one, or the remark.
  struct Found {
    std::int64_t index;  ///< kRemark: the remark
    std::string text;    ///< "NAME: problem"
  };
  static constexpr std::int64_t kRemark = -1;
  /// What has been noted and not yet been taken.
  [[nodiscard]] std::vector<Found> take();
  [[nodiscard]] bool has_news() const;
  [[nodiscard]] std::size_t noted() const;
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] const std::string& remark() const { return remark_; }
  /// Adds what other ranks have found; they are not reported again. Throws the Error of too many.
  void merge(const std::vector<Found>& found);

 private:
  void check() const;

  const std::string source_, remark_;
  const std::int64_t limit_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> found_;
  std::vector<std::int64_t> news_;
  std::string told_;  // the remark; empty: none
};

}  // namespace convoy
