// SPDX-License-Identifier: Apache-2.0
// Replays the stored corpora through the harnesses: whole, cut, and with changed bytes. Under a sanitizer it finds more.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "security/harnesses.h"

namespace {

using anyattn::fuzzing::Harness;
using anyattn::fuzzing::kHarnesses;

// Bytes that end where their memory ends, so that a sanitizer sees the first byte read too far.
void run(const Harness& harness, const std::string& bytes) {
  const auto exact = std::make_unique_for_overwrite<uint8_t[]>(bytes.size());
  std::memcpy(exact.get(), bytes.data(), bytes.size());
  harness.run(exact.get(), bytes.size());
}

std::vector<std::string> corpus(const Harness& harness) {
  std::vector<std::filesystem::path> folders{std::string(ANYATTN_SOURCE_DIR "/tests/security/corpus_") + harness.name};
  if (std::string(harness.name) == "config")
    folders.insert(folders.end(), {ANYATTN_SOURCE_DIR "/config", ANYATTN_SOURCE_DIR "/config/examples"});
  std::vector<std::filesystem::path> files;
  for (const auto& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);  // the changes below are the same on every machine
  std::vector<std::string> inputs;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return inputs;
}

std::string changed(std::string bytes, std::mt19937& random) {
  constexpr std::string_view kSpice = "{}[]:-?&*!|>%@`\"'#,./\n\t ~019\\\x01\x80\xff";
  for (uint32_t change = random() % 8 + 1; change > 0 && !bytes.empty(); --change) {
    const size_t at = random() % bytes.size();
    const char c = random() % 2 != 0 ? kSpice[random() % kSpice.size()] : static_cast<char>(random());
    switch (random() % 4) {
      case 0:
        bytes.insert(at, std::string(random() % 4 + 1, c));
        break;
      case 1:
        bytes.erase(at, random() % 8 + 1);
        break;
      default:
        bytes[at] = c;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("every_harness_answers_its_stored_corpus") {
  for (const Harness& harness : kHarnesses) {
    CAPTURE(harness.name);
    const std::vector<std::string> inputs = corpus(harness);
    CHECK(inputs.size() >= 5);
    for (const std::string& bytes : inputs) run(harness, bytes);
    run(harness, "");
  }
}

TEST_CASE("every_harness_answers_inputs_that_are_cut") {
  for (const Harness& harness : kHarnesses) {
    CAPTURE(harness.name);
    for (const std::string& bytes : corpus(harness))
      for (size_t size = 0, step = bytes.size() / 40 + 1; size < bytes.size(); size += step)
        run(harness, bytes.substr(0, size));
  }
}

TEST_CASE("every_harness_answers_inputs_with_changed_bytes") {
  std::mt19937 random(20);  // fixed: a failure can be repeated
  for (const Harness& harness : kHarnesses) {
    CAPTURE(harness.name);
    const std::vector<std::string> inputs = corpus(harness);
    for (int i = 0; i < 250; ++i) {
      std::string bytes = changed(inputs[random() % inputs.size()], random);
      if (harness.repair && i % 8 != 0) harness.repair(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
      run(harness, bytes);
    }
  }
}
