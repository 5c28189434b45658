// SPDX-License-Identifier: Apache-2.0
// consumer_cpp CONFIG: every installed C++ header compiles, and the owners work.
#include <iostream>

#include "anyattn/backend.hpp"
#include "anyattn/dispatch.hpp"
#include "anyattn/kv_pool.h"
#include "anyattn/models.h"
#include "anyattn/plugin.hpp"
#include "anyattn/runtime.hpp"
#include "anyattn/step.h"

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  const anyattn::Runtime runtime({.config_path = argv[1], .backend = "", .log_level = "error", .num_threads = 1});
  std::cout << runtime.list() << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
