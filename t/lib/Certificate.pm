# A self-signed certificate of the test's own.

package Certificate;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(certificate);

# Makes one in the directory; gives the directives with which nginx uses it.
sub certificate {
    my ($directory) = @_;
    my ($key, $certificate) = ("$directory/key.pem", "$directory/certificate.pem");
    my $output = qx(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \\
        -days 2 -subj /CN=localhost -keyout '$key' -out '$certificate' 2>&1);
    die "openssl: $output\n" if $? != 0;
    return "ssl_certificate $certificate; ssl_certificate_key $key;";
}

1;
