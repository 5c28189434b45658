# SPDX-License-Identifier: Apache-2.0
# anyattn_add_plugin(TARGET NAME name ID id VENDOR text VERSION text LICENSE spdx
#                    SOURCES file ... BACKENDS NAME:device ... [PROVIDERS device ...] [FOLDER folder]
#                    [ABI_MIN 0.1] [ABI_MAX 0.1] [NEEDS_CPU isa ...] [ARCHITECTURES arch ...] [OUTPUT_DIRECTORY dir] [NO_SIDECAR])
# Builds anyattn_<name>.so with the link rules of ABI.md (one exported symbol, nothing undefined, never unloaded) and writes
# the sidecar anyattn_<name>.yaml beside it, so that listing opens nothing.
set(_ANYATTN_PLUGIN_MODULE_DIR ${CMAKE_CURRENT_LIST_DIR})

function(anyattn_add_plugin target)
  cmake_parse_arguments(arg "NO_SIDECAR" "NAME;ID;VENDOR;VERSION;LICENSE;FOLDER;ABI_MIN;ABI_MAX;OUTPUT_DIRECTORY"
    "SOURCES;BACKENDS;PROVIDERS;NEEDS_CPU;ARCHITECTURES" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "anyattn_add_plugin(${target}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(required NAME ID VENDOR VERSION LICENSE SOURCES)
    if(NOT arg_${required})
      message(FATAL_ERROR "anyattn_add_plugin(${target}): ${required} is missing")
    endif()
  endforeach()
  if(NOT arg_BACKENDS AND NOT arg_PROVIDERS)
    message(FATAL_ERROR "anyattn_add_plugin(${target}): name BACKENDS (NAME:device) or PROVIDERS (device)")
  endif()
  foreach(default IN ITEMS "FOLDER=${arg_NAME}" "ABI_MIN=0.1" "ABI_MAX=0.1")
    string(REGEX MATCH "^([A-Z_]+)=(.*)$" _ "${default}")
    if(NOT arg_${CMAKE_MATCH_1})
      set(arg_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  if(NOT arg_OUTPUT_DIRECTORY)
    if(DEFINED ANYATTN_PLUGIN_OUTPUT_DIRECTORY)
      set(arg_OUTPUT_DIRECTORY ${ANYATTN_PLUGIN_OUTPUT_DIRECTORY}/${arg_FOLDER})
    else()
      set(arg_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/plugins/${arg_FOLDER})
    endif()
  endif()

  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE anyattn::sdk)
  set_target_properties(${target} PROPERTIES
    PREFIX "" SUFFIX ".so" OUTPUT_NAME anyattn_${arg_NAME}
    LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT_DIRECTORY}
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    # As installed: what CMake would build with ends in ':', an empty element, which the linker reads as the current folder.
    INSTALL_RPATH "\$ORIGIN/lib" BUILD_WITH_INSTALL_RPATH ON
    LINK_DEPENDS ${_ANYATTN_PLUGIN_MODULE_DIR}/anyattn_plugin.map)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fno-gnu-unique>)
  target_link_options(${target} PRIVATE
    "LINKER:--version-script=${_ANYATTN_PLUGIN_MODULE_DIR}/anyattn_plugin.map"
    LINKER:--exclude-libs,ALL LINKER:-Bsymbolic LINKER:-z,now LINKER:-z,nodelete
    LINKER:-z,noexecstack LINKER:--disable-new-dtags)
  if(NOT (CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND ANYATTN_SANITIZE))
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()

  set_target_properties(${target} PROPERTIES ANYATTN_PLUGIN_FOLDER ${arg_FOLDER})
  if(NOT arg_NO_SIDECAR)
    set_target_properties(${target} PROPERTIES ANYATTN_PLUGIN_SIDECAR ${arg_OUTPUT_DIRECTORY}/anyattn_${arg_NAME}.yaml)
    set(backends "")
    foreach(entry IN LISTS arg_BACKENDS)
      if(NOT entry MATCHES "^([A-Z][A-Z0-9_]*):([a-z]+)$")
        message(FATAL_ERROR "anyattn_add_plugin(${target}): BACKENDS ${entry}: write NAME:device, as in ACME_ATTN:cpu")
      endif()
      string(APPEND backends "  - {name: ${CMAKE_MATCH_1}, device: ${CMAKE_MATCH_2}}\n")
    endforeach()
    if(backends)
      set(backends "backends:\n${backends}")
    else()
      set(backends "backends: []\n")
    endif()
    list(JOIN arg_PROVIDERS ", " providers)
    list(JOIN arg_NEEDS_CPU ", " needs_cpu)
    list(JOIN arg_ARCHITECTURES ", " architectures)
    file(GENERATE OUTPUT ${arg_OUTPUT_DIRECTORY}/anyattn_${arg_NAME}.yaml CONTENT
"# Describes anyattn_${arg_NAME}.so to a host that has not opened it.
sidecar: 1
id: ${arg_ID}
vendor: \"${arg_VENDOR}\"
version: \"${arg_VERSION}\"
license: \"${arg_LICENSE}\"
abi: {min: \"${arg_ABI_MIN}\", max: \"${arg_ABI_MAX}\"}
${backends}providers: [${providers}]
needs_cpu: [${needs_cpu}]
architectures: [${architectures}]
")
  endif()
endfunction()

# anyattn_add_conformance_test(TARGET [BACKEND name] [GRID small|full] [MUST_PASS file] [OPTIONS key=value ...] [TIMEOUT seconds])
# Adds the ctest conformance.<target>: the kit on a plugin of anyattn_add_plugin. Cases of MUST_PASS may not be refused.
function(anyattn_add_conformance_test target)
  cmake_parse_arguments(arg "" "BACKEND;GRID;MUST_PASS;TIMEOUT" "OPTIONS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "anyattn_add_conformance_test(${target}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  get_target_property(folder ${target} ANYATTN_PLUGIN_FOLDER)
  if(NOT folder)
    message(FATAL_ERROR "anyattn_add_conformance_test(${target}): not a target of anyattn_add_plugin")
  endif()
  if(NOT TARGET anyattn::conformance_program)
    message(FATAL_ERROR "anyattn_add_conformance_test(${target}): this SDK was installed without the conformance kit")
  endif()
  set(words "")
  if(arg_BACKEND)
    list(APPEND words --backend ${arg_BACKEND})
  endif()
  if(arg_GRID)
    list(APPEND words --grid ${arg_GRID})
  endif()
  if(arg_MUST_PASS)
    cmake_path(ABSOLUTE_PATH arg_MUST_PASS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND words --must-pass ${arg_MUST_PASS})
  endif()
  foreach(option IN LISTS arg_OPTIONS)
    list(APPEND words --option ${option})
  endforeach()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  add_test(NAME conformance.${target} COMMAND anyattn::conformance_program $<TARGET_FILE:${target}> ${words})
  set_tests_properties(conformance.${target} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()

# anyattn_install_plugin(TARGET [DESTINATION dir] [COMPONENT name]): installs a plugin of anyattn_add_plugin with its sidecar into
# dir/<folder>; dir is where the default configuration of the same prefix looks, the component is runtime, unless said.
function(anyattn_install_plugin target)
  cmake_parse_arguments(arg "" "DESTINATION;COMPONENT" "" ${ARGN})
  get_target_property(folder ${target} ANYATTN_PLUGIN_FOLDER)
  get_target_property(sidecar ${target} ANYATTN_PLUGIN_SIDECAR)
  if(NOT folder)
    message(FATAL_ERROR "anyattn_install_plugin(${target}): not a target of anyattn_add_plugin")
  endif()
  include(GNUInstallDirs)
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION ${CMAKE_INSTALL_LIBDIR}/anyattn/plugins)
  endif()
  if(NOT arg_COMPONENT)
    set(arg_COMPONENT runtime)
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${arg_DESTINATION}/${folder} COMPONENT ${arg_COMPONENT})
  if(sidecar)
    install(FILES ${sidecar} DESTINATION ${arg_DESTINATION}/${folder} COMPONENT ${arg_COMPONENT})
  endif()
endfunction()
