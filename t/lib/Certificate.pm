# Certificates for TLS tests, made with openssl.

package Certificate;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(certificate issued_certificate);

my $NEW_KEY = '-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes';

# Makes a self-signed certificate in the directory; returns the nginx directives that use it.
sub certificate {
    my ($directory) = @_;
    my ($key, $certificate) = ("$directory/key.pem", "$directory/certificate.pem");
    openssl("req -x509 $NEW_KEY -days 2 -subj /CN=localhost -keyout '$key' -out '$certificate'");
    return "ssl_certificate $certificate; ssl_certificate_key $key;";
}

# Makes a certificate authority (roots.pem) in the directory, and a certificate for an IP address that it issues
# (ADDRESS.pem and ADDRESS.key).
sub issued_certificate {
    my ($directory, $address) = @_;
    my $path = "$directory/$address";
    openssl("req -x509 $NEW_KEY -days 2 -subj /CN=tests -keyout '$directory/roots.key' "
        . "-out '$directory/roots.pem'");
    openssl("req -new $NEW_KEY -subj /CN=server -keyout '$path.key' -out '$path.request'");
    open my $file, '>', "$path.extensions" or die "cannot write: $!\n";
    print $file "subjectAltName = IP:$address\n";
    close $file or die "cannot write: $!\n";
    openssl("x509 -req -days 2 -in '$path.request' -extfile '$path.extensions' -set_serial 1 "
        . "-CA '$directory/roots.pem' -CAkey '$directory/roots.key' -out '$path.pem'");
}

sub openssl {
    my ($arguments) = @_;
    my $output = qx(openssl $arguments 2>&1);
    die "openssl: $output\n" if $? != 0;
}

1;
