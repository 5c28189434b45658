# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down, and the package that find_package(anyattn) finds: anyattn::sdk (headers, for plugins),
# anyattn::anyattn (the library, for engines), anyattn::conformance (the kit) and anyattn_add_plugin().
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/anyattn)

set_target_properties(anyattn_sdk PROPERTIES EXPORT_NAME sdk)
set_target_properties(anyattn_conformance PROPERTIES EXPORT_NAME conformance)
install(TARGETS anyattn_sdk anyattn anyattn_conformance anyattn-conformance EXPORT anyattnTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY sdk/include/ sdk/cpp/include/ sdk/conformance/include/ core/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT anyattnTargets NAMESPACE anyattn:: DESTINATION ${package_folder})

configure_package_config_file(cmake/anyattnConfig.cmake.in ${PROJECT_BINARY_DIR}/package/anyattnConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/anyattnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/package/anyattnConfig.cmake
  ${PROJECT_BINARY_DIR}/package/anyattnConfigVersion.cmake
  sdk/cmake/AnyattnPlugin.cmake
  sdk/cmake/anyattn_plugin.map
  DESTINATION ${package_folder})
install(FILES sdk/ABI.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET anyattn_cpu)
  set(cpu_folder ${CMAKE_INSTALL_LIBDIR}/anyattn/plugins/cpu)
  install(TARGETS anyattn_cpu LIBRARY DESTINATION ${cpu_folder})
  install(FILES ${ANYATTN_PLUGIN_OUTPUT_DIRECTORY}/cpu/anyattn_cpu.yaml DESTINATION ${cpu_folder})
endif()
