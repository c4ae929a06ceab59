# `cmake --install`: shell completions, made by the program that was built, and the manual page.
include(GNUInstallDirs)
set(COMPLETIONS ${CMAKE_BINARY_DIR}/completions)
file(MAKE_DIRECTORY ${COMPLETIONS})
foreach(SHELL bash zsh fish)
  add_custom_command(OUTPUT ${COMPLETIONS}/${SHELL}
    COMMAND plimsoll completions ${SHELL} > ${COMPLETIONS}/${SHELL} DEPENDS plimsoll VERBATIM)
endforeach()
add_custom_target(plimsoll_completions ALL
  DEPENDS ${COMPLETIONS}/bash ${COMPLETIONS}/zsh ${COMPLETIONS}/fish)
install(FILES ${COMPLETIONS}/bash RENAME plimsoll
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${COMPLETIONS}/zsh RENAME _plimsoll
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${COMPLETIONS}/fish RENAME plimsoll.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES docs/plimsoll.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
