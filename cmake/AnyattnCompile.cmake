# SPDX-License-Identifier: Apache-2.0
# Warnings, sanitizers and the compiler cache: one interface target that every target of ours links.
find_program(ANYATTN_CCACHE ccache)
if(ANYATTN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${ANYATTN_CCACHE})
  # Without the first of these ccache passes over whatever uses precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ANYATTN_CCACHE})
endif()

add_library(anyattn_compile INTERFACE)
target_compile_options(anyattn_compile INTERFACE -Wall -Wextra -Wpedantic -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
# g++ 12 sees an overlap in "text" + std::string (its bug 105651); nothing here copies onto itself.
target_compile_options(anyattn_compile INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>)
if(ANYATTN_WARNINGS_AS_ERRORS)
  target_compile_options(anyattn_compile INTERFACE -Werror)
endif()
if(ANYATTN_SANITIZE)
  # Everything in a process is built with the same sanitizer, so it is set for the whole tree.
  # -O1 with line numbers only compiles in less than half the time of -O2 -g.
  add_compile_options(-fsanitize=${ANYATTN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${ANYATTN_SANITIZE})
endif()
