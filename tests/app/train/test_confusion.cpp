// SPDX-License-Identifier: Apache-2.0
#include "app/train/confusion.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "layers/base/error.h"

using namespace convoy;

TEST_CASE("accuracies, the lowest first, and what a class is taken for") {
  const Confusion c{{"a", "b", "c", "d"}, {3, 0, 1, 0, 2, 2, 0, 4, 0, 0, 5, 0, 0, 0, 0, 0}};
  CHECK(c.samples(1) == 8);
  CHECK(c.accuracy(1) == 0.25);
  CHECK(std::isnan(c.accuracy(3)));
  CHECK(c.by_accuracy() == std::vector<std::size_t>{1, 0, 2});
  CHECK(c.most_taken_for(1) == 3);
  CHECK(c.most_taken_for(0) == 2);
  CHECK(c.most_taken_for(2) == 2);
}

TEST_CASE("the CSV reads back, with names of any characters") {
  const Confusion c{{"a,b", "say \"no\"", "two\nlines"}, {1, 2, 3, 4, 5, 6, 7, 8, 1e9}};
  const std::string text = confusion_csv(c);
  CHECK(text.substr(0, text.find('\n')) == "label,\"a,b\",\"say \"\"no\"\"\",\"two");
  const Confusion back = parse_confusion(text);
  CHECK(back.classes == c.classes);
  CHECK(back.counts == c.counts);
  CHECK(confusion_csv(back) == text);
  CHECK_THROWS_AS(parse_confusion("a,b\n1,2\n"), Error);
  CHECK_THROWS_AS(parse_confusion("label,a,b\na,1,2\n"), Error);
  CHECK_THROWS_AS(parse_confusion("label,a\na,x\n"), Error);
}

TEST_CASE("the predicted class is the first of the largest; none with NaN") {
  CHECK(predicted_class(std::vector<float>{1, 3, 3, 2}) == 1);
  CHECK(predicted_class(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}) == -1);
}
