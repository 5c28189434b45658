# SPDX-License-Identifier: Apache-2.0
# ANYATTN_NVCC, empty where there is none, and
#   anyattn_add_kernels(TARGET ARCHITECTURES 80 90a ... SOURCES file.cu ... [INSTANCES list.txt])
# which compiles each source for exactly these architectures into the plugin. Each line `NAME HEADER TEXT` of an instance list
# becomes a unit NAME.cu that includes HEADER and says TEXT, `template struct TYPE;`. A source finds all of a list in a table by
#   #define ANYATTN_INSTANCE(...) row(__VA_ARGS__{}),
#   #include "kernels/FOLDER_list.inc"
# which says ANYATTN_INSTANCE(TYPE) a line; the list is FOLDER/list.txt. What ptxas says of every kernel (registers, spills) lies beside
# the object as NAME.ptxas; the target's property ANYATTN_PTXAS_REPORTS lists them.
find_package(CUDAToolkit 12.8 QUIET)
if(NOT CUDAToolkit_FOUND)  # the one that tools/install_dependencies got
  set(cache $ENV{XDG_CACHE_HOME})
  if(NOT cache)
    set(cache $ENV{HOME}/.cache)
  endif()
  if(EXISTS ${cache}/anyattn/cuda13/nvidia/cu13/bin/nvcc)
    unset(CUDAToolkit_NVCC_EXECUTABLE CACHE)  # an older one was found
    unset(CUDAToolkit_BIN_DIR CACHE)
    set(CUDAToolkit_ROOT ${cache}/anyattn/cuda13/nvidia/cu13)
    find_package(CUDAToolkit 12.8 QUIET)
  endif()
endif()
set(ANYATTN_NVCC "${CUDAToolkit_NVCC_EXECUTABLE}")

function(anyattn_add_kernels target)
  cmake_parse_arguments(arg "" "INSTANCES" "ARCHITECTURES;SOURCES" ${ARGN})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  set(sources "")
  foreach(source IN LISTS arg_SOURCES)
    list(APPEND sources ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
  if(arg_INSTANCES)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${arg_INSTANCES})
    file(STRINGS ${arg_INSTANCES} lines REGEX "^[a-z]")
    set(table "// ${arg_INSTANCES}\n")
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "^([^ ]+) +([^ ]+) +(template struct (.*)[\;])$")
        message(FATAL_ERROR "${arg_INSTANCES}: a line `${line}`; allowed: NAME HEADER template struct TYPE\;")
      endif()
      set(unit ${folder}/${CMAKE_MATCH_1}.cu)
      string(APPEND table "ANYATTN_INSTANCE(${CMAKE_MATCH_4})\n")
      file(CONFIGURE OUTPUT ${unit} CONTENT "// ${arg_INSTANCES}\n#include \"${CMAKE_MATCH_2}\"\n${CMAKE_MATCH_3}\n" @ONLY)
      list(APPEND sources ${unit})
    endforeach()
    string(REPLACE "/" "_" name "${arg_INSTANCES}")
    string(REGEX REPLACE "[.]txt$" ".inc" name "${name}")
    file(CONFIGURE OUTPUT ${folder}/${name} CONTENT "${table}" @ONLY)
  endif()
  set(codes "")
  foreach(architecture IN LISTS arg_ARCHITECTURES)
    list(APPEND codes -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH parent)
    cmake_path(GET parent FILENAME kind)
    cmake_path(GET source STEM name)
    set(object ${folder}/${kind}_${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND ${CMAKE_COMMAND} -DOBJECT=${object} -P ${PROJECT_SOURCE_DIR}/cmake/nvcc.cmake --
        ${CMAKE_CXX_COMPILER_LAUNCHER} ${ANYATTN_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3 --expt-relaxed-constexpr -Xptxas -v ${codes}
        -Xcompiler=-fPIC,-fvisibility=hidden -I${PROJECT_SOURCE_DIR}/plugins -I${CMAKE_CURRENT_SOURCE_DIR}
        -I${CMAKE_CURRENT_BINARY_DIR} -I${PROJECT_SOURCE_DIR}/sdk/include -I${PROJECT_SOURCE_DIR}/sdk/cpp/include
        -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/nvcc.cmake
      DEPFILE ${object}.d
      COMMENT "Compiling kernels ${kind}/${name}.cu" VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_sources(${target} PRIVATE ${object})
    set_property(TARGET ${target} APPEND PROPERTY ANYATTN_PTXAS_REPORTS ${object}.ptxas)
  endforeach()
endfunction()
