timeout: failed to run command ‘build/test/protocol/test_failures’: No such file or directory
