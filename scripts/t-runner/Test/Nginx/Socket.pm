# Stands in for openresty's Test::Nginx::Socket where that is not installed,
# so that `use Test::Nginx::Socket ...;` in t/*.t reaches our own runner.
package Test::Nginx::Socket;
use strict;
use warnings;
use parent 'NginxTest';
1;
