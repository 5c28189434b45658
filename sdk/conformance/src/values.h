// SPDX-License-Identifier: Apache-2.0
// Reading and writing the values of a case's words: numbers, lists, names. Included by case_text.cc. Knows no word.
#ifndef ANYATTN_CONFORMANCE_VALUES_H
#define ANYATTN_CONFORMANCE_VALUES_H

#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "anyattn/conformance/case.h"

namespace anyattn::conformance {

[[noreturn]] inline void fail(const std::string& text) { throw CaseError("case: " + text); }

inline std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class T>
T number(std::string_view text) {
  T value{};
  const char* const end = std::to_address(text.end());
  const auto result = std::from_chars(std::to_address(text.begin()), end, value);
  if (result.ec != std::errc() || result.ptr != end) fail("'" + std::string(text) + "' is no number that fits here");
  return value;
}

template <class T>
T number_within(std::string_view text, T least, T most) {
  const T value = number<T>(text);
  if (!(value >= least && value <= most)) {
    fail("'" + std::string(text) + "' is out of range; allowed: " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

inline int size_of(std::string_view text) { return number_within<int>(text, 0, 1 << 24); }

template <class T>
std::string text_of(T value) {
  char text[40];
  const auto result = std::to_chars(text, text + sizeof text, value);
  return {text, result.ptr};
}

template <class T>
std::vector<T> numbers(std::string_view text, char by) {
  std::vector<T> values;
  for (std::string_view part : split(text, by)) values.push_back(number<T>(part));
  return values;
}

template <class T>
std::string joined(const std::vector<T>& values, char by) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += by;
    text += text_of(value);
  }
  return text;
}

inline std::pair<std::string_view, std::string_view> pair_of(std::string_view text, char by) {
  const size_t at = text.find(by);
  if (at == std::string_view::npos) fail("'" + std::string(text) + "' wants two parts with '" + by + "' between them");
  return {text.substr(0, at), text.substr(at + 1)};
}

template <class E>
struct Word {
  E value;
  const char* text;
};

template <class E, size_t N>
E word_value(const Word<E> (&words)[N], std::string_view text, const char* what) {
  std::string allowed;
  for (const Word<E>& word : words) {
    if (text == word.text) return word.value;
    allowed += std::string(allowed.empty() ? "" : ", ") + word.text;
  }
  fail(std::string(what) + " '" + std::string(text) + "' is unknown; allowed: " + allowed);
}

template <class E, size_t N>
std::string word_text(const Word<E> (&words)[N], E value) {
  for (const Word<E>& word : words) {
    if (value == word.value) return word.text;
  }
  return {};
}

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_VALUES_H
