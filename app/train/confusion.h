// SPDX-License-Identifier: Apache-2.0
//
// Which classes are taken for which: the confusion matrix of an evaluation, and its CSV file. Invariant: the sum of the
// diagonal is the number of correct top-1 predictions of the same evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// Models with more classes have no matrix: a million cells are 8 MB on each rank.
inline constexpr std::int64_t kMostConfusionClasses = 1000;

/// A sample whose outputs are not all numbers has no prediction and is not counted.
struct Confusion {
  std::vector<std::string> classes;  ///< names, or numbers where the data names none
  std::vector<double> counts;        ///< [classes, classes]: a row for each label, a column for each prediction

  [[nodiscard]] bool empty() const { return classes.empty(); }
  [[nodiscard]] double at(std::size_t label, std::size_t prediction) const {
    return counts[label * classes.size() + prediction];
  }
  /// Samples of a class.
  [[nodiscard]] double samples(std::size_t label) const;
  /// The share of them that is predicted correctly (recall); NaN without samples.
  [[nodiscard]] double accuracy(std::size_t label) const;
  /// The classes that have samples, the lowest accuracy first, of equal ones the lowest index.
  [[nodiscard]] std::vector<std::size_t> by_accuracy() const;
  /// The other class that samples of this one are taken for most often; the class itself if there is none.
  [[nodiscard]] std::size_t most_taken_for(std::size_t label) const;
};

/// The index of the largest of the outputs [K], of equal ones the lowest; -1 if one is NaN.
[[nodiscard]] std::int64_t predicted_class(std::span<const float> outputs);

/// The names of the first `count` classes; numbers where there are none.
[[nodiscard]] std::vector<std::string> class_names_or_numbers(std::vector<std::string> names, std::int64_t count);

/// A first line "label,NAME,NAME,...", then one for each label: its name and its counts. Names with commas, quotes and
/// ends of lines are quoted (RFC 4180).
[[nodiscard]] std::string confusion_csv(const Confusion& confusion);
/// Throws an Error that says what is wrong with the text.
[[nodiscard]] Confusion parse_confusion(std::string_view csv);

}  // namespace convoy
