# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down, by component; the first two are what find_package(anyattn COMPONENTS ...) knows:
#   sdk                          headers, C++ comfort, conformance kit, anyattn_add_plugin(): all a plugin's author needs
#   runtime                      the library with its API headers, default.yaml, models.yaml, the program that tries plugins
#   tools                        the command
#   plugins-cpu, -cuda, -hip     our plugins, by kind of device
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/anyattn)

set_target_properties(anyattn_sdk PROPERTIES EXPORT_NAME sdk)
install(TARGETS anyattn_sdk EXPORT anyattn_sdk COMPONENT sdk)
install(DIRECTORY sdk/include/ sdk/cpp/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk)
install(FILES sdk/ABI.md sdk/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT sdk)
install(DIRECTORY sdk/template DESTINATION ${CMAKE_INSTALL_DATADIR}/anyattn COMPONENT sdk)
install(FILES sdk/cmake/AnyattnPlugin.cmake sdk/cmake/anyattn_plugin.map DESTINATION ${package_folder} COMPONENT sdk)
if(TARGET anyattn_conformance)
  set_target_properties(anyattn_conformance PROPERTIES EXPORT_NAME conformance)
  install(TARGETS anyattn_conformance EXPORT anyattn_sdk ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT sdk)
  set_target_properties(anyattn-conformance PROPERTIES EXPORT_NAME conformance_program)
  install(TARGETS anyattn-conformance EXPORT anyattn_sdk RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT sdk)
  install(DIRECTORY sdk/conformance/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk)
endif()
install(EXPORT anyattn_sdk NAMESPACE anyattn:: FILE anyattnSdkTargets.cmake DESTINATION ${package_folder} COMPONENT sdk)

# For builds without CMake. Folders are relative to the .pc file, so that the tree may be moved.
file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/anyattn-sdk.pc.in ${PROJECT_BINARY_DIR}/package/anyattn-sdk.pc @ONLY)
configure_file(cmake/anyattn.pc.in ${PROJECT_BINARY_DIR}/package/anyattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/anyattn-sdk.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT sdk)
install(FILES ${PROJECT_BINARY_DIR}/package/anyattn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)

set_target_properties(anyattn PROPERTIES EXPORT_NAME anyattn)
install(TARGETS anyattn EXPORT anyattn_runtime
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT runtime)
install(DIRECTORY core/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
install(EXPORT anyattn_runtime NAMESPACE anyattn:: FILE anyattnRuntimeTargets.cmake DESTINATION ${package_folder} COMPONENT runtime)

configure_package_config_file(cmake/anyattnConfig.cmake.in ${PROJECT_BINARY_DIR}/package/anyattnConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
# While the major is 0 a minor may break; ABI ranges are checked again when a plugin is opened.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/anyattnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/anyattnConfig.cmake ${PROJECT_BINARY_DIR}/package/anyattnConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT sdk)
