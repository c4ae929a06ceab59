# `cmake --install`: the program, and the library for find_package(plimsoll). What Plimsoll is built from
# and only its own sources include (X3, Eigen, nlohmann/json) is not needed by those who link it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PLIMSOLL_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
add_library(plimsoll_library INTERFACE)
set_target_properties(plimsoll_library PROPERTIES EXPORT_NAME plimsoll)
target_link_libraries(plimsoll_library INTERFACE plimsoll_runtime)
# <plimsoll/plimsoll.hpp>, and from there headers as they stand in the repository.
target_include_directories(plimsoll_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(plimsoll_library INTERFACE cxx_std_20)

install(TARGETS plimsoll RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS plimsoll_lang plimsoll_planner plimsoll_runtime plimsoll_library
  EXPORT plimsollTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY lang planner runtime DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plimsoll
  FILES_MATCHING PATTERN "*.hpp")
install(FILES runtime/plimsoll.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plimsoll)
install(EXPORT plimsollTargets NAMESPACE plimsoll:: DESTINATION ${PLIMSOLL_PACKAGE})

configure_package_config_file(runtime/plimsollConfig.cmake.in ${CMAKE_BINARY_DIR}/plimsollConfig.cmake
  INSTALL_DESTINATION ${PLIMSOLL_PACKAGE})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/plimsollConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/plimsollConfig.cmake ${CMAKE_BINARY_DIR}/plimsollConfigVersion.cmake
  DESTINATION ${PLIMSOLL_PACKAGE})
