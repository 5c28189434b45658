# SPDX-License-Identifier: Apache-2.0
# anyattn_add_test(NAME SOURCES ... [LIBRARIES ...] [LABELS ...]): one doctest binary, its cases discovered into ctest.
# Case names are snake_case, a subject and a claim: ';' and ',' in a name would split it.
find_package(doctest REQUIRED)
include(${doctest_DIR}/doctest.cmake)

add_library(anyattn_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/test_main.cc)
target_link_libraries(anyattn_test_main PUBLIC doctest::doctest)

# What nearly every test includes, compiled once: half of a test's compile time is its headers.
add_executable(anyattn_test_headers EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/test_headers.cc)
target_link_libraries(anyattn_test_headers PRIVATE anyattn_compile anyattn_test_main)
target_compile_definitions(anyattn_test_headers PRIVATE DOCTEST_CONFIG_SUPER_FAST_ASSERTS)
target_precompile_headers(anyattn_test_headers PRIVATE <doctest/doctest.h> <algorithm> <array> <atomic> <chrono> <cmath> <cstring>
  <filesystem> <fstream> <functional> <map> <memory> <random> <set> <sstream> <string> <thread> <vector>)
if(ANYATTN_SANITIZE)
  target_compile_options(anyattn_test_headers PRIVATE -O0 -fno-sanitize=undefined)
endif()

# Builds the tests with threads and what they open at run time: the thread sanitizer's build needs no more.
add_custom_target(anyattn_tests_threads)

function(anyattn_add_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES;LABELS;DEFINITIONS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE anyattn_compile anyattn_test_main ${arg_LIBRARIES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    ANYATTN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    ANYATTN_BINARY_DIR="${PROJECT_BINARY_DIR}"
    ANYATTN_PLUGIN_DIR="${ANYATTN_PLUGIN_OUTPUT_DIRECTORY}"
    DOCTEST_CONFIG_SUPER_FAST_ASSERTS  # a check is one call, not a try block: a third less to compile
    ${arg_DEFINITIONS})
  if(ANYATTN_SANITIZE)
    # What is tested is instrumented in full; its tests keep the memory checks and compile in a third of the time.
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
    # Here only: elsewhere some tests are compiled with other options than these headers, which g++ refuses, and at -O3 it warns of
    # the insides of a std::string that comes from them.
    target_precompile_headers(${name} REUSE_FROM anyattn_test_headers)
  endif()
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(anyattn_tests_threads ${name})
  endif()
  add_dependencies(${name} anyattn-probe)
  list(APPEND arg_LABELS asan)  # the sanitizer build of tools/test runs what carries this label
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # doctest exits 0 when a filter matches nothing: that is a failure here.
  doctest_discover_tests(${name}
    TEST_PREFIX "${name}."
    PROPERTIES FAIL_REGULAR_EXPRESSION "test cases: *0 " SKIP_REGULAR_EXPRESSION "SKIPPED:")
  # Among PROPERTIES a list of labels falls apart and swallows the names after it, so labels are set on the discovered tests.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${labels_file} "if(DEFINED ${name}_TESTS)
  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${arg_LABELS}\")
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()
