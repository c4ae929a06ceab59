// SPDX-License-Identifier: Apache-2.0
// Copyright The Plimsoll Authors
"use strict";

const { workspace } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("plimsoll").get("path");
  const server = { command, args: ["lsp"], transport: TransportKind.stdio };
  client = new LanguageClient("plimsoll", "Plimsoll", server, { documentSelector: [{ language: "plan" }] });
  return client.start();
};

exports.deactivate = () => client && client.stop();
